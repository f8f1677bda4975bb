"""From a template to the typed kernel of one variant: the passes, and what backends refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tack.dtypes import f64, i64
from tack.errors import UnsupportedSyntaxError, diagnostic
from tack.ir import nodes as ir
from tack.ir.passes.infer_types import bind_params, infer_types
from tack.ir.passes.localize import localize
from tack.ir.passes.resolve_dims import resolve_dims
from tack.ir.pipeline import Pass, run_pipeline
from tack.ir.traversal import nodes_of, replace
from tack.ir.workgroups import requires_full_workgroups
from tack.runtime import debug, settings
from tack.runtime.bounds import check_bound_types
from tack.runtime.facts import stored_params

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend
    from tack.runtime.variants import ParamType

__all__ = ["prepare"]


def prepare(
    kernel: Kernel,
    template: ir.Kernel,
    backend: Backend,
    types: Sequence[ParamType],
    args: Sequence[Any],
    checked: bool = False,
) -> ir.Kernel:
    """The typed kernel for these arguments; ``checked`` in debug mode.

    Raises:
        TypeError, UnsupportedSyntaxError, ValueError: the kernel does not fit the arguments.
    """
    bound = {}
    shapes = {}
    for param, ty, arg in zip(template.params, types, args, strict=True):
        bound[param.name] = ir.Array(ty.dtype, len(arg.shape), param.width) if ty.is_array else ty.dtype
        if ty.is_array:
            shapes[param.name] = tuple(arg.shape)
    check_bound_types(template, bound)
    checks = None
    if checked:
        checks = debug.extent_offsets(args, [p.name for p in template.params])
        names = debug.hidden_names([name for _, name in stored_params(template)])
        hidden = tuple(ir.Parameter(name, ir.Array(i64, 1)) for name in names)
        template = replace(template, params=(*template.params, *hidden))
        bound |= {name: ir.Array(i64, 1) for name in names}
    passes = [
        Pass("resolve_dims", lambda k: resolve_dims(k, shapes)),
        Pass("bind_params", lambda k: bind_params(k, bound)),
        Pass("infer_types", lambda k: infer_types(k, shapes, checks)),
        Pass("localize", localize),
    ]
    if any(param.texture for param in template.params):
        from tack.ir.passes.sampling import choose_sampling

        in_hardware = {
            param.name
            for param, ty in zip(template.params, types, strict=False)
            if ty.texture_shape is not None and backend.texture_in_hardware(ty.texture_shape)
        }
        passes.insert(0, Pass("choose_sampling", lambda k: choose_sampling(k, in_hardware)))
    if not backend.supports_f64:
        from tack.ir.passes.without_f64 import find_f64, fold_f64, narrow_result

        template = narrow_result(template)
        passes.append(Pass("fold_f64", fold_f64))
    try:
        typed = run_pipeline(template, passes, verify=settings.verify())
    except RecursionError:
        message = "an expression nests too deeply"
        hint = "split it into several statements"
        raise diagnostic(UnsupportedSyntaxError, message, template.loc, hint=hint) from None
    if not backend.supports_f64:
        wide = find_f64(typed)
        if wide is not None:
            raise diagnostic(TypeError, backend.lacks(f64), wide.loc, hint="compute in tack.f32")
    if requires_full_workgroups(typed):
        from tack.ir.passes.participation import participation

        participation(typed)
    dtypes = {p.name: p.type.dtype for p in typed.params if isinstance(p.type, ir.Array)}
    for node in nodes_of(typed, ir.Atomic):
        dtype = dtypes.get(node.array)  # None: a shared array
        if dtype is not None and dtype not in backend.supported_atomic_dtypes:
            known = ", ".join(d.name for d in backend.supported_atomic_dtypes)
            message = f"{backend.label} has no atomics on {dtype}; it has them on {known}"
            raise diagnostic(TypeError, message, node.loc)
    return typed
