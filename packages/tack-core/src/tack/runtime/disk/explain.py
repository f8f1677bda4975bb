"""Why a call would not find its kernel in the disk cache."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tack.lang.kernel import Kernel
from tack.runtime.disk import templates, variants
from tack.runtime.disk.entry import Key, key_text, read_entry
from tack.runtime.disk.records import first_difference
from tack.runtime.disk.store import Store, files, store, versions
from tack.runtime.reasons import Description, describe_parts, nearest, sentence

if TYPE_CHECKING:
    from tack.runtime.backend import Backend
    from tack.runtime.expand import Expanded
    from tack.runtime.facts import TemplateFacts

__all__ = ["Explanation", "explain_call"]


@dataclass(frozen=True)
class Explanation:
    """``hit``: the call would be served from disk. ``differs``: names of what differs, else empty."""

    hit: bool
    differs: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return self.message


def explain_call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """See ``tack.cache.explain``."""
    from tack.runtime.ahead import stand_ins
    from tack.runtime.expand import expand
    from tack.runtime.launch import backend_of

    if not isinstance(kernel, Kernel):
        raise TypeError(f"tack.cache.explain takes a kernel, not {type(kernel).__name__}")
    name = f"kernel '{kernel.__name__}'"
    opened = store()
    if not opened.usable:
        return Explanation(
            False, ("mode",), f"{name}: the cache is not in use (mode {opened.settings.mode!r})"
        )
    bound = stand_ins(kernel, kernel.bind(args, kwargs))
    backend = backend_of(kernel, bound)
    call = expand(kernel, bound)
    key = templates.template_key(kernel, call.elements, call.layouts)
    if key is None:
        message = f"{name}: not cached, since a value in its closure has no content that could be compared"
        return Explanation(False, ("closure",), message)
    found = opened.peek(key, templates.SUFFIX)
    if found is None:
        return _nearest(opened, key, templates.SUFFIX, name, ("module", "kernel"))
    changed = first_difference(templates.initial_owners(kernel, call.layouts), found[0]["records"])
    if changed is not None:
        return Explanation(False, (changed,), f"{name}: miss; '{changed}' is not what it was")
    return _explain_variant(opened, backend, kernel, call, name)


def _explain_variant(
    opened: Store, backend: Backend, kernel: Kernel, call: Expanded, name: str
) -> Explanation:
    from tack.runtime.variants import accept, arrays_disjoint, facts_of, key_of, slot_of

    facts = facts_of(backend, slot_of(backend, kernel), kernel, call)
    accepted = accept(kernel, facts, backend, call.args)
    disjoint = backend.specializes_disjoint and arrays_disjoint(facts.written, accepted)
    key = key_of(backend, kernel, facts, call, accepted, disjoint)
    full_key = variants.variant_key(backend, facts, key)
    if full_key is None:
        return Explanation(False, ("backend",), f"{name}: {backend.label} stores no compiled kernels")
    if opened.peek(full_key, variants.SUFFIX) is not None:
        return Explanation(True, (), f"{name}: hit")
    return _nearest(opened, full_key, variants.SUFFIX, name, ("ir",), facts)


def _nearest(
    opened: Store,
    key: Key,
    suffix: str,
    name: str,
    same: tuple[str, ...],
    facts: TemplateFacts | None = None,
) -> Explanation:
    """How the key differs from the nearest entry that shares the parts ``same``."""
    wanted = dict(json.loads(key_text(key)))
    others = [other for other in _keys(opened, suffix) if all(other.get(p) == wanted[p] for p in same)]
    found = nearest(describe_parts(wanted, facts), _descriptions(others, facts))
    if found is None:
        what = "no entry of this kernel" if suffix == templates.SUFFIX else "no compiled form of it"
        return Explanation(False, (), f"{name}: miss; the cache has {what}")
    if not found:
        return Explanation(False, ("entry",), f"{name}: miss; its entry is damaged or cannot be read")
    names = tuple(dict.fromkeys(difference.element for difference in found))
    return Explanation(False, names, f"{name}: miss; from the nearest entry differs {sentence(found)}")


def _descriptions(keys: list[dict[str, Any]], facts: TemplateFacts | None) -> Iterator[Description]:
    for key in keys:
        with contextlib.suppress(KeyError, TypeError, ValueError):  # another Tack's may have other parts
            yield describe_parts(key, facts)


def _keys(opened: Store, suffix: str) -> Iterator[dict[str, Any]]:
    """The keys of all entries of a level, of every version."""
    if opened.bundle is not None:
        for name, view in opened.bundle.items():
            if name.endswith(suffix):
                yield from _key_of(bytes(view))
    for version in versions(os.path.dirname(opened.path)):
        for file in files(version):
            if file.name.endswith(suffix):
                try:
                    with open(file.path, "rb") as stream:
                        data = stream.read()
                except OSError:
                    continue
                yield from _key_of(data)


def _key_of(data: bytes) -> Iterator[dict[str, Any]]:
    entry = read_entry(data)
    if entry is not None:
        yield dict(json.loads(entry[0]))
