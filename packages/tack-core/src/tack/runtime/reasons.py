"""In which facts two keys differ, in words: for `Kernel.variants`, the log, and `tack.cache.explain`.

A description takes a key apart into facts: each belongs to an element of the key, by the reference's
name, and says of what it is: ``("params", "dtype of x"): "f32"``. Keys in memory and on disk have
the same facts under the same names, so there is one way to compare them and to say how they differ.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tack.lang.device_class import Token

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.facts import TemplateFacts
    from tack.runtime.variants import Key, Slot, Variant

__all__ = [
    "FIRST_CALL",
    "Description",
    "Difference",
    "describe_key",
    "describe_parts",
    "describe_slot",
    "nearest",
    "sentence",
    "text",
]

FIRST_CALL = "first call"

# The facts of a key: element and what of, to the value.
Description = dict[tuple[str, str], Any]

_SHOWN = 4  # differences in a sentence
_LONGEST = 60  # characters of a value


class Difference(NamedTuple):
    """A fact that two keys do not share: ``old`` or ``new`` is None where only the other has it."""

    element: str
    what: str
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = text(self.old), text(self.new)
        if old == new:
            new = f"another {new}"
        if self.element == "shapes":
            return f"shape baked in: {self.what} {old} -> {new}"
        return f"{self.what}: {old} -> {new}"


def text(value: Any) -> str:
    """The value of a fact, in a few characters; a digest by its first ones."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Token):
        return value.name
    if isinstance(value, (list, tuple)) and len(value) >= 3 and value[0] in ("number", "constant"):
        return _number(value[-2], value[-1])
    if isinstance(value, (list, tuple)) and len(value) == 2 and value[0] == "func":
        value = value[1]
    words = value if isinstance(value, str) else str(value)
    if re.fullmatch("[0-9a-f]{64}", words):
        return words[:8]
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _number(kind: str, digits: str) -> str:
    if "float" not in kind.lower():
        return digits
    (value,) = struct.unpack("!d", bytes.fromhex(digits))
    return repr(value) if value == value else f"nan (0x{digits})"


# --- descriptions -----------------------------------------------------------------------------


def describe_key(kernel: Kernel, facts: TemplateFacts, key: Key) -> Description:
    """The facts of a key of a variant in memory."""
    parts = {**key._asdict(), "params": [(p.dtype.name, *p[1:]) for p in key.params]}
    del parts["template"]
    found = describe_parts(parts, facts)
    for position, instance in key.template or ():
        found |= _instance(kernel.params[position], instance)
    return found


def describe_slot(kernel: Kernel, slot: Slot) -> list[tuple[Key, Variant, Description]]:
    """The variants of a kernel on a backend, oldest first, with their descriptions.

    Meanwhile a class may be collected, or another thread may compile: what is half there is left out.
    """
    facts, variants = slot.facts, list(slot.variants.items())
    return [
        (key, variant, describe_key(kernel, facts[key.vectors, key.template], key))
        for key, variant in variants
        if (key.vectors, key.template) in facts
    ]


def describe_parts(parts: Mapping[str, Any], facts: TemplateFacts | None = None) -> Description:
    """The facts of a key of the disk cache, or of the elements that both kinds of keys have.

    Args:
        parts: the key's parts by name, as JSON has them.
        facts: of the template, for the key of a variant.
    """
    found: Description = {}
    for name, value in parts.items():
        if name == "params" and facts is not None:
            found |= _params(facts, value)
        elif name == "vectors":
            found |= {(name, f"elements of {param}"): tuple(shape) for param, shape in value}
        elif name == "shapes" and facts is not None:
            found |= {(name, what): extent for what, extent in _shapes(facts, parts["params"], value)}
        elif name == "disjoint":
            found[name, "arrays disjoint"] = value
        elif name == "template":
            for param, content in value:
                found |= _layout(param, content)
        elif name == "closure":
            found |= {(name, f"closure cell {cell}"): content for cell, content in value}
        else:
            found[name, name] = value
    return found


def _params(facts: TemplateFacts, params: Sequence[Sequence[Any]]) -> Description:
    found: Description = {}
    for name, (dtype, is_array, is_texture, extents) in zip(facts.names, params, strict=False):
        kind = "texture" if is_texture else "array" if is_array else "number"
        found["params", f"kind of {name}"] = kind
        found["params", f"dtype of {name}"] = dtype
        if is_texture:
            found["params", f"extents of {name}"] = tuple(extents)
    hidden = len(params) - len(facts.names)  # debug mode's
    found["params", "debug mode"] = "off" if not hidden else "on" if hidden == 2 else "on with races"
    return found


def _shapes(
    facts: TemplateFacts, params: Sequence[Sequence[Any]], shapes: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """The extents of a key, each with what it is; the counterpart of `shape_signature`."""
    arrays = [k for k, name in enumerate(facts.names) if params[k][1]]
    rest = iter(shapes)
    for position, (name, axis) in facts.needs:
        if position not in arrays:
            continue
        if axis in ("size", "ndim"):
            yield f"{name}.{axis}", next(rest)
        elif isinstance(axis, str) and axis.startswith("indices"):
            count = next(rest)
            yield f"{name}.ndim", count
            yield from ((f"{name}.shape[{k}]", next(rest)) for k in range(1, count))
        else:
            yield f"{name}.shape[{0 if axis == 'len' else axis}]", next(rest)
    if len(params) > len(facts.names):
        yield from ((f"{facts.names[k]}.ndim", count) for k, count in zip(arrays, rest, strict=True))


def _instance(path: str, key: Any) -> Description:
    """The facts of an instance of a device class, from its part of a key in memory."""
    token, constants, arrays, scalars, funcs, nested = key
    found: Description = {("template", f"class of {path}"): token}
    for name, kind, dtype, bits in constants:
        digits = bits.hex() if isinstance(bits, bytes) else str(bits)
        head = ("number",) if dtype is None else ("constant", str(dtype))
        found["template", f"constant {path}.{name}"] = (*head, kind.__name__, digits)
    for name, dtype, shape in arrays:
        found["template", f"array {path}.{name}"] = f"{dtype}{list(shape)}"
    found |= {("template", f"attribute {path}.{name}"): "number" for name in scalars}
    found |= {("template", f"function {path}.{name}"): func for name, func in funcs}
    for name, part in nested:
        found |= _instance(f"{path}.{name}", part)
    return found


def _layout(path: str, content: Any) -> Description:
    """The same from its content in a key on disk, with the members that stand for the class.

    A member that is just a constant is named as that, as in memory.
    """
    parts = dict(content)
    constants = dict(parts["constants"])
    found: Description = {("template", f"class of {path}"): " < ".join(parts["bases"])}
    found |= {("template", f"constant {path}.{name}"): value for name, value in constants.items()}
    for name, value in parts["members"]:
        if constants.get(name.rpartition(".")[2]) != value:
            found["template", f"{name} of {path}"] = value
    found |= {("template", f"array {path}.{name}"): value for name, value in parts["arrays"]}
    found |= {("template", f"attribute {path}.{name}"): "number" for name in parts["scalars"]}
    found |= {("template", f"function {path}.{name}"): value for name, value in parts["funcs"]}
    for name, part in parts["parts"]:
        found |= _layout(f"{path}.{name}", part)
    return found


# --- differences ------------------------------------------------------------------------------


def differences(old: Description, new: Description) -> tuple[Difference, ...]:
    """The facts that are not the same in both, in the order of ``new``."""
    facts = (*new, *(fact for fact in old if fact not in new))
    return tuple(Difference(*f, old.get(f), new.get(f)) for f in facts if old.get(f) != new.get(f))


def nearest(new: Description, others: Iterable[Description]) -> tuple[Difference, ...] | None:
    """The differences from the description that has the fewest, the last of these; None: no others."""
    best: tuple[Difference, ...] | None = None
    for old in others:
        found = differences(old, new)
        if best is None or len(found) <= len(best):
            best = found
    return best


def sentence(found: Sequence[Difference] | None) -> str:
    """Differences in words; without anything to compare with, it is the first call."""
    if found is None:
        return FIRST_CALL
    shown = [str(difference) for difference in found[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(f"and {len(found) - _SHOWN} more")
    return ", ".join(shown)
