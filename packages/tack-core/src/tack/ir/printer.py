"""The IR as text. `docs/design/ir.md` gives the grammar, and `tack.ir.parser` reads it back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tack.dtypes import DType
from tack.ir import nodes as ir

__all__ = ["number_text", "to_text"]


def to_text(node: ir.Node) -> str:
    """The text of ``node``: a kernel, a statement (with what is in it), an expression or a part.

    Statements and kernels end without a line break. Equal trees have equal texts: everything but
    positions, and the types that follow from the parts, is in the text.
    """
    if isinstance(node, ir.Expr):
        return _expr(node)
    if type(node) in _PARTS:
        return _PARTS[type(node)](node)
    lines: list[str] = []
    if isinstance(node, ir.Kernel):
        _kernel(node, lines)
    else:
        _STATEMENTS[type(node)](node, lines, "")
    return "\n".join(lines)


def number_text(value: int | float) -> str:
    """A number as the text has it. A float always shows that it is one; a NaN shows its sign bit."""
    if value != value and math.copysign(1.0, value) < 0:
        return "-nan"
    return repr(value)


# --- expressions ------------------------------------------------------------------------------


def _expr(e: ir.Expr) -> str:
    return _EXPRESSIONS[type(e)](e)


def _list(items: tuple[ir.Expr, ...]) -> str:
    return ", ".join([_EXPRESSIONS[type(e)](e) for e in items])


def _const(e: ir.Const) -> str:
    text = number_text(e.value)
    return text if e.type is None else f"{text}:{e.type.name}"


def _lookup(e: ir.Lookup) -> str:
    return f"lookup{'.' + e.type.name if e.type else ''}({e.table}, {_expr(e.index)})"


def _index(e: ir.Load | ir.Store | ir.Atomic) -> str:
    return _list(e.index) if e.component is None else f"{_list(e.index)}; {_expr(e.component)}"


def _operation(e: ir.Binary | ir.Compare | ir.Logical) -> str:
    return f"{e.op}({_expr(e.left)}, {_expr(e.right)})"


def _bounds(e: ir.Bounds) -> str:
    axes = zip(e.index, e.extents, e.strides, strict=True)
    return f"bounds({e.array}, {', '.join([_list(axis) for axis in axes])})"


_EXPRESSIONS: dict[type, Callable[[Any], str]] = {
    ir.Bounds: _bounds,
    ir.NonZero: lambda e: f"nonzero({_expr(e.operand)})",
    ir.Const: _const,
    ir.Param: lambda e: f"${e.name}",
    ir.Local: lambda e: f"%{e.name}",
    ir.Dim: lambda e: f"dim({e.array}, {e.axis})",
    ir.Load: lambda e: f"{e.array}[{_index(e)}]",
    ir.Meet: lambda e: f"meet({_list((e.value, *e.others))})",
    ir.Lookup: _lookup,
    ir.Fetch: lambda e: f"fetch({e.texture}, {_list(e.position)})",
    ir.LaneId: lambda e: "thread_id()",
    ir.Unary: lambda e: f"{e.op}({_expr(e.operand)})",
    ir.Binary: _operation,
    ir.Compare: _operation,
    ir.Logical: _operation,
    ir.Select: lambda e: f"select({_expr(e.cond)}, {_expr(e.then)}, {_expr(e.orelse)})",
    ir.Call: lambda e: f"call.{e.function}({_list(e.args)})",
    ir.Cast: lambda e: f"cast.{e.to.name}({_expr(e.operand)})",
    ir.Bitcast: lambda e: f"bitcast.{e.to.name}({_expr(e.operand)})",
}


# --- parts of kernels and statements ----------------------------------------------------------


def _range(r: ir.Range) -> str:
    return f"({_expr(r.start)}, {_expr(r.stop)}, {_expr(r.step)})"


def _array(a: ir.Array) -> str:
    return f"{_element(a.dtype, a.width)}[{',' * (a.ndim - 1) if a.ndim else '.'}]"


def _element(dtype: DType, width: int) -> str:
    return dtype.name if width == 1 else f"{dtype.name}x{width}"


def _parameter(p: ir.Parameter) -> str:
    text = p.name
    if p.type is not None:
        text += f": {_array(p.type) if isinstance(p.type, ir.Array) else p.type.name}"
    text += "" if p.pinned is None else f" pin {p.pinned.name}"
    text += "" if p.width == 1 else f" width {p.width}"
    return f"{text} texture" if p.texture else text


def _table(t: ir.Table) -> str:
    dtype = f"{t.dtype.name} " if t.dtype else ""
    return f"{dtype}({', '.join([number_text(v) for v in t.values])})"


_PARTS: dict[type, Callable[[Any], str]] = {
    ir.Range: _range,
    ir.Array: _array,
    ir.Parameter: _parameter,
    ir.Table: _table,
}


# --- statements: each appends its lines -------------------------------------------------------


def _body(body: tuple[ir.Stmt, ...], lines: list[str], pad: str) -> None:
    for s in body:
        _STATEMENTS[type(s)](s, lines, pad)


def _braces(head: str, body: tuple[ir.Stmt, ...], lines: list[str], pad: str) -> None:
    lines.append(f"{pad}{head} {{")
    _body(body, lines, pad + "  ")
    lines.append(f"{pad}}}")


def _if(s: ir.If, lines: list[str], pad: str) -> None:
    _braces(f"if {_expr(s.cond)}", s.then, lines, pad)
    if s.orelse:
        lines.pop()
        _braces("} else", s.orelse, lines, pad)


def _atomic(s: ir.Atomic, lines: list[str], pad: str) -> None:
    target = "" if s.target is None else f"%{s.target} = "
    lines.append(f"{pad}{target}atomic_{s.op} {s.array}[{_index(s)}], {_list(s.operands)}")


def _sample(s: ir.Sample, lines: list[str], pad: str) -> None:
    _braces(f"sample %{s.target} = {s.texture}({_list(s.position)})", s.body, lines, pad)


def _print(s: ir.Print, lines: list[str], pad: str) -> None:
    import json  # 2 ms, which a cold start need not pay

    parts = ", ".join([json.dumps(p) if isinstance(p, str) else _expr(p) for p in s.parts])
    lines.append(f"{pad}print {parts}".rstrip())


def _parallel(s: ir.Parallel, lines: list[str], pad: str) -> None:
    dims = ", ".join([f"{v} in {_range(r)}" for v, r in zip(s.vars, s.ranges, strict=True)])
    _braces(f"parallel {dims}", s.body, lines, pad)


_STATEMENTS: dict[type, Callable[[Any, list[str], str], None]] = {
    ir.Assign: lambda s, lines, pad: lines.append(f"{pad}%{s.target} = {_expr(s.value)}"),
    ir.Store: lambda s, lines, pad: lines.append(f"{pad}{s.array}[{_index(s)}] = {_expr(s.value)}"),
    ir.Atomic: _atomic,
    ir.LocalArray: lambda s, lines, pad: lines.append(
        f"{pad}{'shared' if s.shared else 'array'} {s.name} {_element(s.dtype, s.width)}({_list(s.shape)})"
    ),
    ir.Barrier: lambda s, lines, pad: lines.append(f"{pad}barrier"),
    ir.BlockReduce: lambda s, lines, pad: lines.append(f"{pad}%{s.target} = block_{s.op}({_expr(s.value)})"),
    ir.For: lambda s, lines, pad: _braces(f"for %{s.var} in {_range(s.range)}", s.body, lines, pad),
    ir.While: lambda s, lines, pad: _braces(f"while {_expr(s.cond)}", s.body, lines, pad),
    ir.If: _if,
    ir.Break: lambda s, lines, pad: lines.append(f"{pad}break"),
    ir.Continue: lambda s, lines, pad: lines.append(f"{pad}continue"),
    ir.Block: lambda s, lines, pad: _braces(f"block {s.label}", s.body, lines, pad),
    ir.Leave: lambda s, lines, pad: lines.append(f"{pad}leave {s.label}"),
    ir.Print: _print,
    ir.Sample: _sample,
    ir.Parallel: _parallel,
}


def _kernel(k: ir.Kernel, lines: list[str]) -> None:
    result = "" if k.result_type is None else f" -> {k.result_type.name}"
    lines.append(
        f"{'kernel' if k.typed else 'template'} {k.name}({', '.join([_parameter(p) for p in k.params])})"
        f"{result}{' fastmath' if k.fastmath else ''} {{"
    )
    lines += [f"  local {name}: {k.locals[name].name}" for name in sorted(k.locals)]
    lines += [f"  table {name} {_table(k.tables[name])}" for name in sorted(k.tables)]
    _body(k.before, lines, "  ")
    _parallel(k.loop, lines, "  ")
    _body(k.after, lines, "  ")
    if k.result is not None:
        lines.append(f"  return {_expr(k.result)}")
    lines.append("}")
