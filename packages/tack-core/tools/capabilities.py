"""The table in docs/backends.md of what each backend can do: ``python tools/capabilities.py [--write]``.

It is made from what the backends' classes declare; no device is started. ``--write`` puts it into the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.backend import Backend
from tack.runtime.dispatch import backend_type, device_types
from tack.runtime.dlpack import DEVICE_TYPES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "backends.md"
BEGIN, END = "<!-- made by packages/tack-core/tools/capabilities.py -->\n", "<!-- end -->\n"
VARIES = "¹"


class Row(NamedTuple):
    """A line of the table; ``depends`` names the declarations that it shows."""

    title: str
    cell: Callable[[type[Backend]], str]
    depends: tuple[str, ...]


def _dtypes(found: tuple[DType, ...]) -> str:
    missing = [f"`{d}`" for d in ALL_DTYPES if d not in found]
    if not missing:
        return "all"
    if len(missing) <= 2:
        return f"all but {', '.join(missing)}"
    return " ".join(f"`{d}`" for d in found) or "none"


def _names(found: tuple[str, ...], none: str) -> str:
    return ", ".join(f"`{name}`" for name in found) or none


def _flag(title: str, name: str) -> Row:
    return Row(title, lambda b: "yes" if getattr(b, name) else "no", (name,))


def _method(title: str, name: str) -> Row:
    return Row(title, lambda b: "yes" if b.provides(name) else "no", (name,))


def _dlpack(backend: type[Backend]) -> str:
    return str(next((kind for kind, name in DEVICE_TYPES.items() if name == backend.name), "—"))


ROWS = (
    Row("element types", lambda b: _dtypes(b.supported_dtypes), ("supported_dtypes",)),
    Row("atomics on", lambda b: _dtypes(b.supported_atomic_dtypes), ("supported_atomic_dtypes",)),
    _flag("workgroups: shared arrays, barriers, block reductions", "supports_workgroups"),
    Row(
        "bytes of shared arrays",
        lambda b: f"{b.shared_memory:,}" if b.shared_memory else "no limit",
        ("shared_memory",),
    ),
    _flag("workgroups go on while others wait for them", "forward_progress"),
    _flag("`print` in kernels prints", "supports_print"),
    _method("textures sampled by hardware", "texture_in_hardware"),
    _flag("`sum`, `min`, `max`, `mean` on the device", "supports_device_reductions"),
    _flag("launches are queued", "queues_launches"),
    _method("`tack.capture`", "graph"),
    _method("warm calls run no Python", "native_plan"),
    _method("kernels are kept on disk", "cache_target"),
    _method("`kernel.compile` ahead of a launch", "compile"),
    _method("`tack.inspect`", "inspect"),
    _flag("kernels use NumPy arrays where they are", "wraps_host_memory"),
    _flag("arrays must be aligned to their elements", "requires_alignment"),
    Row(
        "`tack.array_from_ptr` takes pointers to",
        lambda b: _names(b.device_memory_spaces, "not checked"),
        ("device_memory_spaces",),
    ),
    Row("DLPack device type", _dlpack, ()),
    _method("`__cuda_array_interface__`", "cuda_array_interface"),
    _method("`arr.share()` with other processes", "share"),
    Row("options of `tack.device`", lambda b: _names(b.device_options, "—"), ("device_options",)),
)


def table() -> str:
    """The table and its note, as Markdown."""
    known = map(backend_type, device_types())  # of which others may be registered, too
    backends = [backend for backend in known if backend.__module__.startswith("tack.")]
    lines = [
        "| | " + " | ".join(b.display_name for b in backends) + " |",
        "|---|" + "---|" * len(backends),
        "| `tack.device(…)` | " + " | ".join(f'`"{b.name}"`' for b in backends) + " |",
    ]
    for row in ROWS:
        cells = [row.cell(b) + VARIES * bool({*row.depends} & {*b.varies}) for b in backends]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{VARIES} on devices that have it; some have less.", ""])


def page(text: str) -> str:
    """A page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What each backend can do, from its declarations.")
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())
