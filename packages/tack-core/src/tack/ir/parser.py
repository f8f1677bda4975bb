"""Reads the textual form of the IR (`docs/design/ir.md`), which `tack.ir.printer` writes.

A recursive-descent parser. In a typed kernel it gives every expression its type, which the text
leaves out because it follows from the parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar

from tack.dtypes import ALL_DTYPES, DType, f32, i64
from tack.ir import nodes as ir
from tack.ir.semantics import ATOMICS, BINARY_OPS, BLOCK_REDUCTIONS, COMPARISONS, UNARY_OPS, result_type
from tack.lang.builtins import BUILTINS

__all__ = ["parse"]

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|//[^\n]*)
      | (?P<newline>\n)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|-(?:inf|nan)\b)
      | (?P<local>%[\w.]+)
      | (?P<param>\$[\w.]+)
      | (?P<name>[^\W\d][\w.]*)
      | (?P<sign>->|[()\[\]{}:;,=.])""",
    re.VERBOSE,
)
_DTYPES = {d.name: d for d in ALL_DTYPES}
_WORDS: dict[str, type[ir.Stmt]] = {"break": ir.Break, "continue": ir.Continue, "barrier": ir.Barrier}
_BLOCK_REDUCTIONS = {f"block_{op}": op for op in BLOCK_REDUCTIONS}


class _Operation(NamedTuple):
    build: Callable[..., ir.Expr]  # from the operands
    min_operands: int
    max_operands: int | None


def _call(function: str, *args: ir.Expr) -> ir.Call:
    return ir.Call(function, args)


def _meet(value: ir.Expr, *others: ir.Expr) -> ir.Meet:
    return ir.Meet(value, others)


# Every operation by the text before its operands.
_OPERATIONS = {
    "select": _Operation(ir.Select, 3, 3),
    "thread_id": _Operation(ir.LaneId, 0, 0),
    "meet": _Operation(_meet, 2, None),
    "nonzero": _Operation(ir.NonZero, 1, 1),
    **{op: _Operation(partial(ir.Unary, op), 1, 1) for op in UNARY_OPS},
    **{op: _Operation(partial(ir.Binary, op), 2, 2) for op in BINARY_OPS},
    **{op: _Operation(partial(ir.Compare, op), 2, 2) for op in COMPARISONS},
    **{op: _Operation(partial(ir.Logical, op), 2, 2) for op in ("and", "or")},
    **{f"call.{n}": _Operation(partial(_call, n), b.min_args, b.max_args) for n, b in BUILTINS.items()},
    **{f"cast.{n}": _Operation(partial(ir.Cast, to=d), 1, 1) for n, d in _DTYPES.items()},
    **{f"bitcast.{n}": _Operation(partial(ir.Bitcast, to=d), 1, 1) for n, d in _DTYPES.items()},
}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def parse(text: str) -> ir.Kernel:
    """The kernel that ``text`` describes, without positions in source.

    Blank lines, and comments from ``//`` to the end of a line, are skipped. The result follows
    the grammar, but not necessarily the invariants: `tack.ir.verify.verify` checks those.

    Raises:
        ValueError: the text is malformed; the message starts with ``line:column`` (1-based) and
            says what was expected there.
    """
    parser = _Parser(text)
    try:
        return parser.kernel()
    except RecursionError:
        parser.fail("less nesting")


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            tokens.append(_Token("unknown", text[position], position))
            break
        kind = str(match.lastgroup)
        # A run of line breaks is one token, and none is needed at the start.
        if kind != "skip" and not (kind == "newline" and (not tokens or tokens[-1].kind == "newline")):
            tokens.append(_Token(kind, match.group(), position))
        position = match.end()
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._typed = False
        self._scalars: dict[str, DType] = {}
        self._locals: dict[str, DType] = {}
        self._arrays: dict[str, DType] = {}

    # --- tokens ---

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    @property
    def before_bracket(self) -> bool:
        """Whether the token at hand is the name in an access to an array, as in ``print[0] = 1``."""
        return self._tokens[self._next + 1].text == "["

    def fail(self, expected: str, token: _Token | None = None) -> NoReturn:
        token = token or self.token
        line = self._text.count("\n", 0, token.start) + 1
        column = token.start - self._text.rfind("\n", 0, token.start)
        found = {"newline": "the end of the line", "end": "the end of the text"}.get(
            token.kind, json.dumps(token.text, ensure_ascii=False)
        )
        raise ValueError(f"{line}:{column}: expected {expected}, found {found}")

    def take(self, kind: str, expected: str) -> str:
        token = self.token
        if token.kind != kind:
            self.fail(expected)
        self._next += 1
        return token.text

    def accept(self, text: str) -> bool:
        found = self.token.text == text
        self._next += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(json.dumps(text))

    def keyword(self, word: str) -> bool:
        found = self.token.text == word and not self.before_bracket
        self._next += found
        return found

    def end_line(self) -> None:
        self.take("newline", "the end of the line")

    def separated(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """The items, with commas between, up to the bracket ``close``, which it takes."""
        items: list[T] = []
        while not self.accept(close):
            if items and not self.accept(","):
                self.fail(f'"," or "{close}"')
            items.append(item())
        return tuple(items)

    def name(self, what: str) -> str:
        return self.take("name", what)

    def local_name(self) -> str:
        return self.take("local", "a local variable")[1:]

    def dtype(self) -> DType:
        token = self.token
        if token.text not in _DTYPES:
            self.fail(f"a dtype ({', '.join(_DTYPES)})")
        self._next += 1
        return _DTYPES[token.text]

    def number(self) -> int | float:
        token = self.token
        if token.text in ("inf", "nan"):
            self._next += 1
            return float(token.text)
        text = self.take("number", "a number")
        try:
            return int(text)
        except ValueError:  # a float, or more digits than Python converts
            if text.lstrip("-").isdigit():
                self.fail("an integer of fewer digits", token)
            return float(text)

    # --- kernels ---

    def kernel(self) -> ir.Kernel:
        self._typed = self.accept("kernel")
        if not self._typed and not self.accept("template"):
            self.fail('"kernel" or "template"')
        name = self.name("the kernel's name")
        self.expect("(")
        params = self.separated(self.parameter, ")")
        result_type = self.dtype() if self.accept("->") else None
        fastmath = self.accept("fastmath")
        self.expect("{")
        self.end_line()
        while self.keyword("local"):
            local = self.new_name(self._locals)
            self.expect(":")
            self._locals[local] = self.dtype()
            self.end_line()
        tables: dict[str, ir.Table] = {}
        while self.keyword("table"):
            table = self.new_name(tables)
            tables[table] = self.table()
        before = self.statements(("parallel", "}"))
        loop = self.parallel()
        after = self.statements(("return", "}"))
        result = None
        if self.accept("return"):
            result = self.expr()
            self.end_line()
        self.expect("}")
        if self.token.kind == "newline":
            self._next += 1
        if self.token.kind != "end":
            self.fail("the end of the text")
        return ir.Kernel(
            *(name, params, before, loop, after, result, result_type, self._locals, tables),
            typed=self._typed,
            fastmath=fastmath,
        )

    def new_name(self, known: Container[str]) -> str:
        if self.token.text in known:
            self.fail("a new name")
        return self.name("a name")

    def parameter(self) -> ir.Parameter:
        name = self.name("a parameter's name")
        type: ir.Array | DType | None = None
        if self.accept(":"):
            token = self.token
            dtype, width = self.element_type()
            if self.accept("["):
                self._arrays[name] = dtype
                type = ir.Array(dtype, self.dimensions(), width)
            elif width == 1:
                self._scalars[name] = type = dtype
            else:
                self.fail("a scalar's dtype", token)
        pinned = self.dtype() if self.accept("pin") else None
        width = self.integer() if self.accept("width") else 1
        return ir.Parameter(name, type, pinned, width, self.accept("texture"))

    def element_type(self) -> tuple[DType, int]:
        """``f32``, or ``f32x3`` for elements of three components."""
        token = self.token
        name, cross, width = token.text.partition("x")
        if name not in _DTYPES or (cross and not width.isdecimal()):
            self.fail(f"a dtype ({', '.join(_DTYPES)}), or one with a width such as f32x3")
        self._next += 1
        return _DTYPES[name], int(width) if cross else 1

    def integer(self) -> int:
        token = self.token
        value = self.number()
        if not isinstance(value, int):
            self.fail("an integer", token)
        return value

    def dimensions(self) -> int:
        if self.accept("."):
            self.expect("]")
            return 0
        ndim = 1
        while self.accept(","):
            ndim += 1
        self.expect("]")
        return ndim

    def table(self) -> ir.Table:
        dtype = None if self.token.text == "(" else self.dtype()
        self.expect("(")
        values = self.separated(self.number, ")")
        self.end_line()
        return ir.Table(values, dtype)

    def parallel(self) -> ir.Parallel:
        if not self.keyword("parallel"):
            self.fail('a statement or "parallel"')
        typed, self._typed = self._typed, False  # its ranges stay in template form
        vars: list[str] = []
        ranges: list[ir.Range] = []
        while not vars or self.accept(","):
            vars.append(self.name("the loop variable's name"))
            self.expect("in")
            ranges.append(self.range())
        self._typed = typed
        return ir.Parallel(tuple(vars), tuple(ranges), self.body())

    # --- statements ---

    def statements(self, end: tuple[str, ...] = ("}",)) -> tuple[ir.Stmt, ...]:
        """The statements up to one of the words ``end``, which it leaves."""
        found = []
        while self.token.text not in end or self.before_bracket:
            found.append(self.statement())
        return tuple(found)

    def body(self, end_line: bool = True) -> tuple[ir.Stmt, ...]:
        self.expect("{")
        self.end_line()
        found = self.statements()
        self.expect("}")
        if end_line:
            self.end_line()
        return found

    def statement(self) -> ir.Stmt:
        token = self.token
        if token.kind == "local":
            return self.assignment()
        if token.kind != "name":
            self.fail("a statement")
        if self.before_bracket:
            return self.store()
        self._next += 1
        if token.text.startswith("atomic_"):
            return self.atomic(None, token)
        if token.text in _WORDS:
            self.end_line()
            return _WORDS[token.text]()
        other = getattr(self, f"parse_{token.text}", None)
        if other is None:
            self.fail("a statement", token)
        found: ir.Stmt = other()
        return found

    def assignment(self) -> ir.Stmt:
        target = self.local_name()
        self.expect("=")
        token = self.token
        if token.text.startswith("atomic_") and self._tokens[self._next + 1].kind == "name":
            self._next += 1
            return self.atomic(target, token)
        if token.text in _BLOCK_REDUCTIONS and not self.before_bracket:
            self._next += 1
            self.expect("(")
            operand = self.expr()
            self.expect(")")
            self.end_line()
            return ir.BlockReduce(target, _BLOCK_REDUCTIONS[token.text], operand)
        value = self.expr()
        self.end_line()
        return ir.Assign(target, value)

    def store(self) -> ir.Store:
        array, index, component = self.element()
        self.expect("=")
        value = self.expr()
        self.end_line()
        return ir.Store(array, index, value, component)

    def atomic(self, target: str | None, token: _Token) -> ir.Atomic:
        op = token.text.removeprefix("atomic_")
        if op not in ATOMICS:
            self.fail(f"an atomic operation ({', '.join(ATOMICS)})", token)
        array, index, component = self.element()
        operands = []
        while self.accept(","):
            operands.append(self.expr())
        self.end_line()
        return ir.Atomic(target, op, array, index, tuple(operands), component)

    def element(self) -> tuple[str, tuple[ir.Expr, ...], ir.Expr | None]:
        array = self.name("an array's name")
        self.expect("[")
        index: list[ir.Expr] = []
        component = None
        while not self.accept("]"):
            if self.accept(";"):
                component = self.expr()
                self.expect("]")
                break
            if index:
                self.expect(",")
            index.append(self.expr())
        return array, tuple(index), component

    def range(self) -> ir.Range:
        token = self.token
        self.expect("(")
        parts = self.separated(self.expr, ")")
        if len(parts) != 3:
            self.fail("start, stop and step", token)
        return ir.Range(*parts)

    def parse_shared(self) -> ir.LocalArray:
        return self.parse_array(shared=True)

    def parse_array(self, shared: bool = False) -> ir.LocalArray:
        name = self.name("an array's name")
        dtype, width = self.element_type()
        self._arrays[name] = dtype
        self.expect("(")
        shape = self.separated(self.expr, ")")
        self.end_line()
        return ir.LocalArray(name, shape, dtype, width, shared)

    def parse_for(self) -> ir.For:
        var = self.local_name()
        self.expect("in")
        return ir.For(var, self.range(), self.body())

    def parse_while(self) -> ir.While:
        return ir.While(self.expr(), self.body())

    def parse_if(self) -> ir.If:
        cond = self.expr()
        then = self.body(end_line=False)
        if self.accept("else"):
            return ir.If(cond, then, self.body())
        self.end_line()
        return ir.If(cond, then, ())

    def parse_block(self) -> ir.Block:
        return ir.Block(self.name("a label"), self.body())

    def parse_leave(self) -> ir.Leave:
        label = self.name("a label")
        self.end_line()
        return ir.Leave(label)

    def parse_sample(self) -> ir.Sample:
        target = self.local_name()
        self.expect("=")
        texture = self.name("a texture's name")
        self.expect("(")
        return ir.Sample(target, texture, self.separated(self.expr, ")"), self.body())

    def parse_print(self) -> ir.Print:
        parts: list[str | ir.Expr] = []
        while self.token.kind != "newline" and (not parts or self.accept(",")):
            parts.append(self.string() if self.token.kind == "string" else self.expr())
        self.end_line()
        return ir.Print(tuple(parts))

    def string(self) -> str:
        token = self.token
        self._next += 1
        try:
            return str(json.loads(token.text))
        except ValueError:
            self.fail("a JSON string", token)

    # --- expressions ---

    def expr(self) -> ir.Expr:
        token = self.token
        if token.kind == "number" or (token.text in ("inf", "nan") and not self.before_bracket):
            return self.const()
        if token.kind == "local":
            name = self.local_name()
            return ir.Local(name, type=self.declared(name, self._locals, "a declared local", token))
        if token.kind == "param":
            name = self.take("param", "a parameter")[1:]
            return ir.Param(name, type=self.declared(name, self._scalars, "a scalar parameter", token))
        if token.kind == "name" and self.before_bracket:
            name, index, component = self.element()
            return ir.Load(
                name, index, component, type=self.declared(name, self._arrays, "a declared array", token)
            )
        return self.operation()

    def declared(self, name: str, types: dict[str, DType], what: str, token: _Token) -> DType | None:
        """The type that ``name`` was declared with, in a typed kernel."""
        if self._typed and name not in types:
            self.fail(what, token)
        return types[name] if self._typed else None

    def const(self) -> ir.Const:
        value = self.number()
        if self._typed or self.token.text == ":":
            self.expect(":")
            return ir.Const(value, type=self.dtype())
        return ir.Const(value)

    def operation(self) -> ir.Expr:
        token = self.token
        name = self.name("an expression")
        self.expect("(")
        if name == "dim":
            return self.dim()
        if name == "lookup" or name.startswith("lookup."):
            return self.lookup(token)
        if name == "bounds":
            return self.bounds()
        if name == "fetch":
            texture = self.name("a texture's name")
            self.expect(",")
            return ir.Fetch(texture, self.separated(self.expr, ")"), type=f32)
        operands = self.separated(self.expr, ")")
        operation = _OPERATIONS.get(name)
        if operation is None:
            self.fail("an operation", token)
        build, low, high = operation
        if len(operands) < low or (high is not None and len(operands) > high):
            self.fail(f"an operation with {len(operands)} operands", token)
        found = build(*operands)
        if self._typed:
            found.type = result_type(found)
        return found

    def lookup(self, token: _Token) -> ir.Lookup:
        dtype = _DTYPES.get(token.text.removeprefix("lookup."))
        if (dtype is not None) != self._typed:
            self.fail('"lookup.", a dtype' if self._typed else '"lookup"', token)
        table = self.name("a table's name")
        self.expect(",")
        index = self.expr()
        self.expect(")")
        return ir.Lookup(table, index, type=dtype)

    def bounds(self) -> ir.Bounds:
        array = self.name("an array's name")
        token = self.token
        self.expect(",")
        parts = self.separated(self.expr, ")")
        if len(parts) % 3:
            self.fail("an index, an extent and a stride for each axis", token)
        return ir.Bounds(array, parts[::3], parts[1::3], parts[2::3], type=i64)

    def dim(self) -> ir.Dim:
        array = self.name("an array's name")
        self.expect(",")
        token = self.token
        axis: int | float | str
        axis = self.name("an axis") if token.kind == "name" else self.number()
        if isinstance(axis, float) or (isinstance(axis, str) and axis not in ("size", "ndim", "len")):
            self.fail('an axis, "size", "ndim" or "len"', token)
        self.expect(")")
        return ir.Dim(array, axis)
