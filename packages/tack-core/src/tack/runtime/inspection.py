"""`tack.inspect`: what a kernel becomes, as text."""

from __future__ import annotations

from typing import Any

from tack.lang.kernel import Kernel
from tack.runtime import debug
from tack.runtime.dispatch import launch_backend
from tack.runtime.expand import expand
from tack.runtime.facts import TemplateFacts
from tack.runtime.prepare import prepare
from tack.runtime.variants import accept, arrays_disjoint, param_types
from tack.runtime.workgroups import check_workgroup_support

__all__ = ["inspect"]

_MODES = ("ir", "source", "optimized", "asm")


def inspect(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], mode: str) -> str:
    """See ``tack.inspect``."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"tack.inspect takes a kernel, not {type(kernel).__name__}")
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(_MODES)}")
    bound = kernel.bind(args, kwargs)
    backend = launch_backend(bound, kernel.params)
    call = expand(kernel, bound)
    facts = TemplateFacts(kernel.lowered(call.elements, call.key, call.layouts))
    check_workgroup_support(kernel, facts.primitives, backend, NotImplementedError)
    accepted = accept(kernel, facts, backend, call.args)
    types = param_types(kernel, facts, backend, accepted)
    typed = prepare(kernel, facts.lowered.ir, backend, types, accepted, debug.enabled())
    if mode == "ir":
        from tack.ir.printer import to_text

        return to_text(typed)
    return backend.inspect(typed, mode, arrays_disjoint(facts.written, accepted))
