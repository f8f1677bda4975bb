"""`Kernel.variants`: what a kernel was compiled for, and why there is more than one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tack.lang.device_class import Token
from tack.runtime.dispatch import backends, resolve_backend
from tack.runtime.reasons import Description, Difference, describe_slot, nearest, sentence, text

if TYPE_CHECKING:
    from tack.lang.kernel import Elements, Kernel
    from tack.runtime.device import Device
    from tack.runtime.variants import ParamType, Slot

__all__ = ["VariantInfo", "VariantList", "list_variants"]


@dataclass(frozen=True, slots=True)
class VariantInfo:
    """One compiled variant of a kernel; its elements have the names of the key's.

    Attributes:
        device: where it runs, as ``tack.device`` takes it, with its options.
        params: dtype and category of each parameter, in the order of the kernel's, with the
            attributes of device classes in place of their instances.
        vectors: the parameters whose elements are vectors or matrices, with the elements' shapes.
        template: for each instance of a device class its class, constants and attributes, or None.
        shapes: the extents that are constants in its code.
        disjoint: whether its code relies on arrays that do not overlap.
        differences: how its key differs from the nearest that was there before; None for the first.
        compile_time: seconds that it took to compile, or to read from the disk cache.
        from_disk: whether it was read from the disk cache.
        arguments: what it was compiled for, in words.
    """

    device: str
    params: tuple[ParamType, ...]
    vectors: Elements
    template: Any
    shapes: tuple[int, ...]
    disjoint: bool
    differences: tuple[Difference, ...] | None
    compile_time: float
    from_disk: bool
    arguments: str

    @property
    def reason(self) -> str:
        """Why it exists: ``"first call"``, or what was new, such as ``"dtype of x: f32 -> f64"``."""
        return sentence(self.differences)

    @property
    def differs(self) -> tuple[str, ...]:
        """The elements of the key that differ from the nearest variant's; empty for the first."""
        return tuple(dict.fromkeys(d.element for d in self.differences or ()))

    def __repr__(self) -> str:
        made = "from disk" if self.from_disk else "compiled"
        return f"<variant on {self.device} for {self.arguments}; {made} in {_ms(self)} ms; {self.reason}>"


class VariantList(tuple[VariantInfo, ...]):
    """The variants of a kernel, oldest first on each device; printed, it is a table."""

    kernel: str

    def __new__(cls, kernel: str, variants: list[VariantInfo]) -> VariantList:
        self = super().__new__(cls, variants)
        self.kernel = kernel
        return self

    def __repr__(self) -> str:
        if not self:
            return f"kernel '{self.kernel}': no variants yet"
        head = f"kernel '{self.kernel}': {len(self)} variant{'s' if len(self) > 1 else ''}"
        rows = [("", "device", "made", "ms", "for", "because of")]
        for k, one in enumerate(self, 1):
            made = "from disk" if one.from_disk else "compiled"
            rows.append((str(k), one.device, made, _ms(one), one.arguments, one.reason))
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join([*map(str.ljust, row, widths), row[5]]) for row in rows]
        return "\n".join([head, *(f"  {line.rstrip()}" for line in lines)])


def _ms(variant: VariantInfo) -> str:
    return f"{1e3 * variant.compile_time:.1f}"


def list_variants(kernel: Kernel, device: str | Device | None) -> VariantList:
    """See `Kernel.variants`."""
    found: list[VariantInfo] = []
    for backend in backends() if device is None else [resolve_backend(device)]:
        slot = backend.cache.get(kernel)
        if slot is not None:
            options = "".join(f", {name}={value!r}" for name, value in backend.options.items())
            found += _of_slot(kernel, backend.spec + options, slot, backend.specializes_disjoint)
    return VariantList(kernel.__name__, found)


def _of_slot(kernel: Kernel, device: str, slot: Slot, overlap: bool) -> list[VariantInfo]:
    found: list[VariantInfo] = []
    before: list[Description] = []
    for key, variant, description in describe_slot(kernel, slot):
        changed = nearest(description, before)
        before.append(description)
        arguments = _arguments(description) + (", may overlap" if overlap and not key.disjoint else "")
        found.append(VariantInfo(device, *key, changed, variant.seconds, variant.from_disk, arguments))
    return found


def _arguments(description: Description) -> str:
    """What a variant is for: ``x: f32[], n: i32, x.shape[1]=8``."""
    kinds = {what[8:]: kind for (_, what), kind in description.items() if what.startswith("kind of ")}
    words = []
    for name, kind in kinds.items():
        dtype = description["params", f"dtype of {name}"]
        elements = description.get(("vectors", f"elements of {name}"))
        inner = dtype if elements is None else f"{dtype}{list(elements)}"
        words.append(f"{name}: {inner if kind == 'number' else f'{inner}[]' if kind == 'array' else kind}")
    for (element, what), value in description.items():
        if element == "shapes":
            words += [] if what.endswith(".ndim") else [f"{what}={value}"]
        elif what.startswith("constant "):
            words.append(f"{what[9:]}={text(value)}")
        elif isinstance(value, Token) and what.startswith("class of "):
            words.append(f"{what[9:]}: {value.name}")
        elif what == "debug mode" and value != "off":
            words.append(f"debug {value}")
    return ", ".join(words)
