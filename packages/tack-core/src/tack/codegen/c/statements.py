"""Rules for statements, by node class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tack.codegen.c.atomics import atomic
from tack.codegen.c.checks import check_race
from tack.codegen.c.emitter import Emitter
from tack.codegen.c.expressions import exact_value, text, truth, value
from tack.codegen.c.printing import emit_print
from tack.codegen.c.terms import UNARY, Term, within
from tack.codegen.c.workgroups import barrier, block_reduce
from tack.dtypes import i64
from tack.errors import diagnostic
from tack.ir.nodes import (
    Assign,
    Atomic,
    Barrier,
    Block,
    BlockReduce,
    Bounds,
    Break,
    Const,
    Continue,
    Expr,
    For,
    If,
    Leave,
    LocalArray,
    Param,
    Print,
    Stmt,
    Store,
    While,
)
from tack.ir.traversal import walk_statements

__all__ = ["STATEMENTS", "statements"]

_JUMPS = (Break, Continue, Leave)


def statements(fn: Emitter, body: Iterable[Stmt]) -> None:
    """The statements of ``body``, up to the first after which none can run."""
    for statement in body:
        if not isinstance(statement, Block | LocalArray):
            fn.remark(statement.loc)
        STATEMENTS[type(statement)](fn, statement)
        if isinstance(statement, _JUMPS):
            return


# --- memory -------------------------------------------------------------------------------------


def _assign(fn: Emitter, node: Assign) -> None:
    name = fn.name(node.target)
    if id(node) in fn.declarations.first:
        name = f"{fn.local_type(node.target)} {name}"
    fn.line(f"{name} = {text(fn, node.value)};")


def _store(fn: Emitter, node: Store) -> None:
    stored = text(fn, node.value)
    with _guarded(fn, node) as at:
        fn.line(f"{fn.element(node.array, at).text} = {stored};")


@contextmanager
def _guarded(fn: Emitter, node: Store | Atomic) -> Iterator[Term]:
    """The index of the element to change; in debug mode the change is made only where it is in range."""
    at = value(fn, node.index[0])
    if not isinstance(node.index[0], Bounds):
        yield at
        return
    name = fn.temporary(i64)
    fn.line(f"{name} = {at.text};")
    with fn.braces(f"if ({name} >= 0)"):
        yield Term(name)
        if isinstance(node, Store):
            check_race(fn, node.array, node.index[0], name)


def _local_array(fn: Emitter, node: LocalArray) -> None:
    """Declared where the function starts."""


def _atomic(fn: Emitter, node: Atomic) -> None:
    operands = [value(fn, operand) for operand in node.operands]
    dtype = fn.unit.arrays[node.array]
    if dtype.name not in fn.dialect.atomic_dtypes:
        message = f"{fn.dialect.name} has no atomics on {dtype}"
        raise diagnostic(TypeError, message, node.loc, kernel=fn.unit.kernel.name)
    target = None if node.target is None else fn.name(node.target)
    if target is not None and isinstance(node.index[0], Bounds):
        fn.line(f"{target} = 0;")  # what an index out of range gives
    with _guarded(fn, node) as at:
        address = f"&{fn.element(node.array, at).text}"
        if node.op == "load":
            call = fn.dialect.atomic_load(address, dtype)
        elif node.array in fn.unit.shared:
            call = fn.dialect.shared_add(address, operands[0].text)
        else:
            call = atomic(fn, node.op, dtype, address, operands)
        fn.line(f"{call};" if target is None else f"{target} = {call};")


# --- loops --------------------------------------------------------------------------------------


def _known(node: Expr) -> int | None:
    return int(node.value) if isinstance(node, Const) else None


def _for(fn: Emitter, node: For) -> None:
    start, stop, step = node.range.start, node.range.stop, node.range.step
    by = _known(step)
    if by is not None and by < 1:
        return
    name = fn.name(node.var)
    own = node.var in fn.declarations.loops  # the variable is the counter
    counter = name if own else fn.unit.names.fresh(f"{node.var}_at")
    first, end = text(fn, start), _kept(fn, stop, f"{counter}_stop")
    last = _known(stop)
    if by == 1 or (by is not None and last is not None and last + by <= i64.max):
        head = f"i64 {counter} = {first}; {counter} < {end}; "
        head += f"++{counter}" if by == 1 else f"{counter} += {by}"
    else:  # start + step could overflow, but what is left of the range only shrinks
        first, size = _kept(fn, start, f"{counter}_start"), _kept(fn, step, f"{counter}_step")
        rest = fn.unit.names.fresh(f"{counter}_rest")
        fn.line(f"u64 {rest} = {first} < {end} && {size} > 0 ? (u64){end} - {first} : 0;")
        head = f"i64 {counter} = {first}; {rest}; "
        head += f"{rest} -= {rest} < (u64){size} ? {rest} : {size}, {counter} = (u64){counter} + {size}"
    with fn.loop(f"for ({head})"):
        if not own:
            fn.line(f"{name} = {counter};")
        statements(fn, node.body)


def _kept(fn: Emitter, node: Expr, name: str) -> str:
    """The value of ``node`` from now on, in a variable ``name`` if it could change."""
    found = exact_value(fn, node)
    if isinstance(node, Const | Param):
        return within(found, UNARY)
    name = fn.unit.names.fresh(name)
    fn.line(f"const i64 {name} = {found.text};")
    return name


def _while(fn: Emitter, node: While) -> None:
    with fn.loop(f"while ({truth(fn, node.cond).text})"):
        statements(fn, node.body)


# --- control ------------------------------------------------------------------------------------


def _if(fn: Emitter, node: If) -> None:
    with fn.braces(f"if ({truth(fn, node.cond).text})"):
        statements(fn, node.then)
    if node.orelse:
        with fn.orelse():
            statements(fn, node.orelse)


def _break(fn: Emitter, node: Break) -> None:
    fn.exits.leave(fn, "break")


def _continue(fn: Emitter, node: Continue) -> None:
    if fn.loops:
        fn.exits.leave(fn, "continue")
    else:
        fn.line("return;")


def _block(fn: Emitter, node: Block) -> None:
    if not fn.dialect.has_goto and any(
        isinstance(n, Leave) and n.label == node.label for n in walk_statements(node)
    ):
        with fn.exits.target(fn, "do", node.label):
            statements(fn, node.body)
        return
    fn.labels.pop(node.label, None)  # that of a block before this one
    with fn.braces():
        statements(fn, node.body)
    if node.label in fn.labels:
        fn.label(fn.labels[node.label])


def _leave(fn: Emitter, node: Leave) -> None:
    if not fn.dialect.has_goto:
        fn.exits.leave(fn, "break", node.label)
        return
    label = fn.labels.get(node.label)
    if label is None:
        label = fn.labels[node.label] = fn.unit.names.fresh(f"{node.label}_end")
    fn.line(f"goto {label};")


STATEMENTS: dict[type[Stmt], Callable[[Emitter, Any], None]] = {
    Assign: _assign,
    Store: _store,
    LocalArray: _local_array,
    Atomic: _atomic,
    For: _for,
    While: _while,
    If: _if,
    Break: _break,
    Continue: _continue,
    Block: _block,
    Leave: _leave,
    Print: emit_print,
    Barrier: barrier,
    BlockReduce: block_reduce,
}
