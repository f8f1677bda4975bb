"""The second level: compiled variants, each with its typed IR and what its backend made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tack.runtime import debug
from tack.runtime.disk.store import store

if TYPE_CHECKING:
    from tack.runtime.backend import Backend
    from tack.runtime.disk.entry import Key
    from tack.runtime.facts import TemplateFacts
    from tack.runtime.variants import Key as VariantKey
    from tack.runtime.variants import Variant

__all__ = ["SUFFIX", "load", "save", "variant_key"]

SUFFIX = ".variant"


def variant_key(backend: Backend, facts: TemplateFacts, key: VariantKey) -> Key | None:
    """The named parts of a variant's key; None if its template or its backend's code is not cached."""
    identity = facts.lowered.identity
    target = None if identity is None else backend.cache_target()
    if target is None:
        return None
    params = [(p.dtype.name, p.is_array, p.is_texture, p.texture_shape) for p in key.params]
    return [
        ("ir", identity),
        ("params", params),
        ("vectors", key.vectors),
        ("shapes", key.shapes),
        ("disjoint", key.disjoint),
        ("debug", debug.state()),
        ("backend", backend.name),
        *target,
    ]


def load(backend: Backend, facts: TemplateFacts, key: VariantKey, args: Sequence[Any]) -> Variant | None:
    """The variant with this key, if the disk cache has it."""
    if facts.lowered.identity is None or not store().usable:
        return None
    full_key = variant_key(backend, facts, key)
    entry = None if full_key is None else store().read(full_key, SUFFIX)
    if entry is None:
        return None
    from tack.runtime.variants import Variant

    about, sections = entry

    def read() -> Any:
        from tack.runtime.disk.code import from_sections

        return from_sections(sections, facts.lowered.sources)

    try:
        payload = backend.load_variant(read, bytes(sections[2]), tuple(args))
    except (LookupError, RuntimeError, TypeError, ValueError):  # whatever it is, compiling is right
        payload = None
    if payload is None:
        store().outdated()
        return None
    found = (
        tuple((k, name) for k, name in about["written"]),
        tuple((k, name, size) for k, name, size in about["aligned"]),
        about["full"],
    )
    return Variant(key, payload, facts.bounds, found, read=read, from_disk=True)


def save(backend: Backend, facts: TemplateFacts, variant: Variant) -> None:
    """Stores a variant that was built in this process."""
    if facts.lowered.identity is None or not store().writes:
        return
    key = variant_key(backend, facts, variant.key)
    artifact = None if key is None else backend.variant_artifact(variant.payload)
    if key is None or artifact is None:
        return
    from tack.runtime.disk.code import to_sections

    sections = to_sections(variant.ir, facts.lowered.sources)
    if sections is not None:
        about = {
            "written": variant.written,
            "aligned": variant.aligned,
            "full": variant.requires_full_workgroups,
        }
        store().write(key, SUFFIX, about, [*sections, artifact])
