"""The first level: kernels lowered to their IR template, before they are specialized for types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tack.lang.bindings import recorded
from tack.lang.kernel import Func, Kernel
from tack.lang.lowered import Lowered
from tack.runtime.disk import config
from tack.runtime.disk.content import class_funcs, digest, function_content, layout_content
from tack.runtime.disk.entry import Key, key_text
from tack.runtime.disk.records import first_difference, records_of
from tack.runtime.disk.store import store

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.device_class import Layout
    from tack.lang.kernel import Elements
    from tack.lang.source import Source

__all__ = ["SUFFIX", "initial_owners", "lowered", "template_key"]

SUFFIX = ".ir"


def template_key(kernel: Kernel, elements: Elements, layouts: Mapping[str, Layout]) -> Key | None:
    """The named parts of a template's key; None if one has no stable content."""
    content = function_content(kernel.function, kernel.source)
    if content is None:
        return None
    name, source, kinds, result, _, cells = content
    template = [[param, layout_content(layout)] for param, layout in layouts.items()]
    if any(part is None for _, part in template):
        return None
    methods = initial_owners(kernel, layouts)[1:]
    return [
        ("tack", config.version_name()),
        ("module", kernel.__module__),
        ("kernel", f"{kernel.__qualname__} {name}"),
        ("source", source),
        ("annotations", kinds),
        ("result", result),
        ("fastmath", kernel.fastmath),
        ("closure", cells),
        ("vectors", elements),
        ("template", template),
        # Which of them are one function: a record names the first only.
        ("methods", [next(k for k, o in enumerate(methods) if o is func) for func in methods]),
    ]


def initial_owners(kernel: Kernel, layouts: Mapping[str, Layout]) -> list[Any]:
    """The owners that a key itself brings: the kernel, and its instances' device functions."""
    return [kernel, *(func for layout in layouts.values() for func in class_funcs(layout))]


def lowered(kernel: Kernel, elements: Elements, layouts: Mapping[str, Layout]) -> Lowered:
    """A kernel's template: read from the disk cache if what it was made from is unchanged."""
    files = store()
    key = template_key(kernel, elements, layouts) if files.usable else None
    if key is None:
        from tack.lang.lower import lower_kernel

        return Lowered(lower_kernel(kernel, elements, layouts))
    entry = files.read(key, SUFFIX)
    if entry is not None:
        facts, sections = entry
        owners = initial_owners(kernel, layouts)
        if first_difference(owners, facts["records"]) is None:
            sources = sources_of(owners)
            read = partial(_read, sections, sources)
            return Lowered(None, read, facts=facts["template"], identity=facts["identity"], sources=sources)
        files.outdated()
    return _lower(kernel, elements, layouts, key)


def _lower(kernel: Kernel, elements: Elements, layouts: Mapping[str, Layout], key: Key) -> Lowered:
    from tack.lang.lower import lower_kernel
    from tack.runtime.disk.code import to_sections
    from tack.runtime.facts import facts_of_template

    with recorded() as readings:
        template = lower_kernel(kernel, elements, layouts)
    owners = initial_owners(kernel, layouts)
    records = records_of(owners, readings)
    sections = None if records is None else to_sections(template, sources_of(owners))
    if records is None or sections is None:
        return Lowered(template)
    facts = facts_of_template(template)
    identity = digest(key_text(key) + key_text([("records", records)]))
    store().write(key, SUFFIX, {"identity": identity, "records": records, "template": facts}, sections)
    return Lowered(template, facts=facts, identity=identity, sources=sources_of(owners))


def _read(sections: list[memoryview], sources: list[Source | None]) -> ir.Kernel:
    from tack.runtime.disk.code import from_sections

    return from_sections(sections, sources)


def sources_of(owners: list[Any]) -> list[Source | None]:
    """The source of each owner that is a function."""
    return [owner.source if isinstance(owner, (Kernel, Func)) else None for owner in owners]
