"""A rough estimate of how long an iteration takes, to choose between serial and threaded launches.

Only the order of magnitude matters: fanning out pays from some tens of microseconds of work on.
"""

from __future__ import annotations

from tack.ir.nodes import (
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    BlockReduce,
    Break,
    Call,
    Cast,
    Const,
    Continue,
    Expr,
    For,
    If,
    Kernel,
    LaneId,
    Leave,
    Load,
    Local,
    LocalArray,
    Lookup,
    Node,
    Param,
    Print,
    Range,
    Stmt,
    Store,
    While,
)
from tack.ir.traversal import children, nodes_of, walk, walk_statements

__all__ = ["has_known_lengths", "is_bounded", "iteration_cost", "longest_cost"]

# Nanoseconds, between those of vectorized and of scalar code, without cache misses; functions as vectorized.
_OPERATION = 0.1
_MEMORY = 0.15
_ATOMIC = 6.0
_PRINT = 2000.0
_FLOAT_OPERATORS = {"div": 0.7, "floordiv": 3.0, "mod": 2.0, "pow": 4.0}
_INTEGER_OPERATORS = {"floordiv": 3.0, "mod": 3.0, "pow": 10.0}
_CALLS = {
    **dict.fromkeys(("abs", "min", "max", "sign", "copysign", "floor", "ceil", "round", "trunc"), 0.2),
    **dict.fromkeys(("fma", "isnan", "isinf", "isfinite", "any", "all", "where"), 0.2),
    **dict.fromkeys(("popcount", "clz", "ctz"), 0.3),
    "sqrt": 1.0,
    "rsqrt": 1.5,
    **dict.fromkeys(("cos", "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "tanh"), 1.0),
    **dict.fromkeys(("erf", "erfc", "fmod"), 1.5),
    **dict.fromkeys(("acos", "asin", "atan", "atan2", "cosh", "hypot", "log10", "sinh", "tan"), 1.5),
}
_LIBM_CALL = 10.0
_OTHERS = {Load: _MEMORY, Store: _MEMORY, Lookup: _MEMORY, Atomic: _ATOMIC, Print: _PRINT}
_ACCESSES = (Load, Store, Atomic)
_FREE = frozenset(
    (
        *(Const, Param, Local, LaneId, Range),
        *(Assign, Barrier, BlockReduce, Break, Continue, Leave, LocalArray),
    )
)
# What a loop is taken to run if its range is not constant.
UNKNOWN_TRIPS = 16


def iteration_cost(kernel: Kernel) -> float:
    """Nanoseconds that one iteration of the parallel loop of a typed kernel takes, roughly."""
    return _OPERATION + _body(kernel.loop.body, UNKNOWN_TRIPS)


def longest_cost(kernel: Kernel, trips: int) -> float:
    """The same, and what is outside, where loops of unknown length run ``trips`` times if that is more."""
    body = (*kernel.before, *kernel.loop.body, *kernel.after)
    return _OPERATION + _body(body, max(trips, UNKNOWN_TRIPS))


def is_bounded(kernel: Kernel) -> bool:
    """Whether the estimate cannot be far below the truth: it has seen every loop, and its length."""
    inside = sum(isinstance(n, For) for n in walk_statements(kernel.loop))
    return has_known_lengths(kernel) and len(nodes_of(kernel, For)) == inside


def has_known_lengths(kernel: Kernel) -> bool:
    """Whether constants tell how often each loop runs at most."""
    return not nodes_of(kernel, While) and all(map(_has_constant_range, nodes_of(kernel, For)))


def _has_constant_range(loop: For) -> bool:
    return _most_trips(loop.range) is not None


def _body(body: tuple[Stmt, ...], trips: int) -> float:
    return sum(_statement(statement, trips) for statement in body)


def _statement(node: Stmt, trips: int) -> float:
    if isinstance(node, For):
        most = _most_trips(node.range)
        rounds = trips if most is None else most
        return _parts(node.range) + rounds * (_OPERATION + _body(node.body, trips))
    if isinstance(node, While):
        return trips * (_parts(node.cond) + _body(node.body, trips))
    if isinstance(node, If):
        return _OPERATION + _parts(node.cond) + max(_body(node.then, trips), _body(node.orelse, trips))
    return _body(node.body, trips) if isinstance(node, Block) else _parts(node)


def _parts(root: Node) -> float:
    """The cost of a node with no statements below it."""
    cost = 0.0
    for node in walk(root):
        if type(node) not in _FREE:
            cost += _own(node)
            if isinstance(node, _ACCESSES):  # what an index computes is mostly constant along the loop
                cost -= sum(map(_arithmetic, node.index))
    return cost


def _own(node: Node) -> float:
    """A node's cost without its children."""
    if isinstance(node, Binary):
        assert node.type is not None
        table = _FLOAT_OPERATORS if node.type.is_float else _INTEGER_OPERATORS
        return table.get(node.op, _OPERATION)
    if isinstance(node, Call):
        return _CALLS.get(node.function, _LIBM_CALL)
    return _OTHERS.get(type(node), _OPERATION)


def _arithmetic(index: Expr) -> float:
    """The part of an index's cost that is additions and the like, outside what it loads."""
    if isinstance(index, Load) or type(index) in _FREE:
        return 0.0
    own = _own(index)
    parts = sum(_arithmetic(e) for e in children(index) if isinstance(e, Expr))
    return parts + (own if own == _OPERATION else 0.0)


def _most_trips(bounds: Range) -> int | None:
    """How often a loop runs at most, if constants tell. `range(min(4096, n))` is taken to run 4096 times."""
    stop = _upper_bound(bounds.stop)
    if stop is None or not isinstance(bounds.start, Const) or not isinstance(bounds.step, Const):
        return None
    step = int(bounds.step.value)
    return len(range(int(bounds.start.value), stop, step)) if step > 0 else 0


def _upper_bound(value: Expr) -> int | None:
    """A constant that the integer ``value`` does not exceed."""
    if isinstance(value, Const):
        return int(value.value)
    if isinstance(value, Call) and value.function == "min":
        return min((b for b in map(_upper_bound, value.args) if b is not None), default=None)
    if isinstance(value, Cast) and value.to.is_signed:
        return _upper_bound(value.operand)
    return None
