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

__all__ = ["UNKNOWN_TRIPS", "is_bounded", "iteration_cost", "unknown_depth"]

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
    return _OPERATION + _body(kernel.loop.body)


def is_bounded(kernel: Kernel) -> bool:
    """Whether the estimate cannot be far below the truth: it has seen every loop, and its length."""
    inside = sum(isinstance(n, For) for n in walk_statements(kernel.loop))
    return _has_known_lengths(kernel) and len(nodes_of(kernel, For)) == inside


def unknown_depth(kernel: Kernel) -> int:
    """How deep loops nest of which the estimate takes ``UNKNOWN_TRIPS`` for the length."""
    if _has_known_lengths(kernel):
        return 0
    return max(map(_depth, (*kernel.before, kernel.loop, *kernel.after)))


def _depth(node: Node) -> int:
    deepest = max((_depth(s) for field in node._bodies for s in getattr(node, field)), default=0)
    return deepest + (isinstance(node, While) or (isinstance(node, For) and not _has_constant_range(node)))


def _has_known_lengths(kernel: Kernel) -> bool:
    return not nodes_of(kernel, While) and all(map(_has_constant_range, nodes_of(kernel, For)))


def _has_constant_range(loop: For) -> bool:
    return _most_trips(loop.range) is not None


def _body(body: tuple[Stmt, ...]) -> float:
    return sum(map(_statement, body))


def _statement(node: Stmt) -> float:
    if isinstance(node, For):
        return _parts(node.range) + _trips(node.range) * (_OPERATION + _body(node.body))
    if isinstance(node, While):
        return UNKNOWN_TRIPS * (_parts(node.cond) + _body(node.body))
    if isinstance(node, If):
        return _OPERATION + _parts(node.cond) + max(_body(node.then), _body(node.orelse))
    return _body(node.body) if isinstance(node, Block) else _parts(node)


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


def _trips(bounds: Range) -> float:
    most = _most_trips(bounds)
    return UNKNOWN_TRIPS if most is None else most


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
