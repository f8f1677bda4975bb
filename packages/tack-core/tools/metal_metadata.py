"""What PyObjC knows of the Metal API that the backend calls: ``python tools/metal_metadata.py WHEEL``.

Prints ``tests/emulated/metal/metadata.json``: the types of each selector in Objective-C's encoding, result
first, and the values of constants. WHEEL is pyobjc-framework-Metal's for macOS, which unpacks anywhere:
``pip download --no-deps --only-binary=:all: --platform macosx_11_0_universal2 --python-version 3.12
pyobjc-framework-Metal``. Names that it does not know are an error, but for methods of classes, whose types
PyObjC asks macOS for: ``classes`` lists them, and they are to be looked up by hand.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT / "src/tack/runtime/metal", ROOT / "tests/emulated/metal")
# Python's own methods, or the bridge's, that have the names of selectors without arguments.
_PYTHON = {"alloc", "index", "init"}


def read(wheel: str) -> tuple[dict[str, Any], dict[str, int], str]:
    """The selectors with what PyObjC says of them, the constants, and all that else has a name."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("Metal/_metadata.py").decode()
    selectors: dict[str, Any] = {}
    objc = types.ModuleType("objc")

    def register(cls: bytes, selector: bytes, about: dict[str, Any]) -> None:
        if cls == b"NSObject":  # protocols, which have no class of their own
            selectors[selector.decode()] = about

    def ignore(*args: object, **named: object) -> None: ...

    known = {"arch": "arm64", "registerMetaDataForSelector": register}
    objc.__getattr__ = lambda name: known.get(name, ignore)  # type: ignore[method-assign]
    sys.modules["objc"] = objc
    space: dict[str, Any] = {}
    exec(compile(text, "_metadata.py", "exec"), space)
    constants = {name: int(value) for name, value in re.findall(r"\$(\w+)@(-?\d+)(?=\$)", space["enums"])}
    return selectors, constants, text


def used() -> tuple[set[str], set[str]]:
    """The methods that the sources call or define, and the names of Metal that they have."""
    methods: set[str] = set()
    names: set[str] = set()
    protocols: set[str] = set()  # the fake's classes
    for file in sorted(path for folder in SOURCES for path in folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                methods.add(node.func.attr)
            elif isinstance(node, ast.Attribute):
                methods.add(node.attr if node.attr.endswith("_") else "")
                names.add(node.attr if node.attr.startswith("MTL") else "")
            elif isinstance(node, ast.Name):
                names.add(node.id if node.id.startswith("MTL") else "")
            elif isinstance(node, ast.FunctionDef):
                methods.add(node.name)
            elif isinstance(node, ast.ClassDef):
                protocols.add(node.name)
            elif isinstance(node, ast.Constant) and str(node.value).startswith("MTL"):
                names.add(str(node.value))
    return {m for m in methods if m and not m.startswith("_")}, {n for n in names if n} - protocols


def encoding(about: dict[str, Any], count: int) -> list[str]:
    """The types of the result and of each argument."""
    given = about.get("arguments", {})
    parts = [about.get("retval", {}), *(given.get(k + 2, {}) for k in range(count))]
    found = [part.get("type", b"@") for part in parts]
    return [t.decode() if isinstance(t, bytes) else t for t in found]


def main(wheel: str) -> None:
    selectors, constants, text = read(wheel)
    methods, names = used()
    found, classes = {}, []
    for method in sorted(methods):
        selector = method.replace("_", ":")
        about = selectors.get(selector)
        if about is not None and method not in _PYTHON:
            found[method] = encoding(about, selector.count(":"))
        elif method.endswith("_"):
            classes.append(method)
    values = {name: constants[name] for name in sorted(names) if name in constants}
    missing = [name for name in names - values.keys() if name not in text]
    assert not missing, f"PyObjC does not know {', '.join(missing)}"
    json.dump({"selectors": found, "classes": classes, "constants": values}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1])
