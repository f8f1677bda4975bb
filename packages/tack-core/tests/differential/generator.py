"""Random programs of integers and control flow, written twice: for Tack and for plain Python.

Every expression is generated as a pair of texts with a static type. The Python text computes with
unbounded integers and wraps them where the specification says so, through the conformance oracle;
it shares nothing with the compiler. Statements have the same shape in both texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conformance import oracle

INPUTS = 32  # elements of each input array: program inputs repeat with this period
SCRATCH = 4  # elements of each iteration's own part of the scratch arrays
LOCAL = 8  # elements of a local array


def _arithmetic(name: str) -> dict[str, Callable[..., int]]:
    """What the Python texts call for one type: as the oracle, with its constants at hand."""
    n, low = oracle.bits(name), oracle.limits(name)[0]
    mask = 2**n - 1

    def wrap(v: int) -> int:
        return ((v - low) & mask) + low

    return {
        f"w_{name}": wrap,
        f"shl_{name}": lambda a, b: wrap(a << (b % n)),
        f"shr_{name}": lambda a, b: a >> (b % n),
        f"power_{name}": lambda a, b: oracle.int_power(a, b, name),
        f"popcount_{name}": lambda v: (v & mask).bit_count(),
        f"clz_{name}": lambda v: n - (v & mask).bit_length(),
        f"ctz_{name}": lambda v: (v & -v).bit_length() - 1 if v else n,
    }


_PRELUDE: dict[str, Callable[..., int]] = {
    "div": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
}
for _name in oracle.INTEGERS:
    _PRELUDE |= _arithmetic(_name)


@dataclass(frozen=True)
class Expr:
    """One expression: its Tack and Python texts, its type, and whether it is a literal or loop index."""

    tack: str
    python: str
    type: str
    literal: bool = False  # a non-negative literal or a loop index: allowed beside u64


@dataclass
class Function:
    """A device function with typed parameters, cast to at each call."""

    name: str
    params: list[str]
    result: str
    tack: list[str]
    python: list[str]


@dataclass
class Program:
    """The statements of one program, and the device functions it calls."""

    tack: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # Tack statements before the parallel loop
    functions: list[Function] = field(default_factory=list)
    result: str = "i64"
    returns: bool = False  # the program is itself a device function that returns its result


@dataclass
class _Scope:
    """What expressions and statements may use at one point."""

    locals: dict[str, str] = field(default_factory=dict)
    indices: list[str] = field(default_factory=list)
    arrays: bool = True  # input, scratch and local arrays are reachable
    returns: str | None = None  # the result type of the function being written
    loops: int = 0
    outer: bool = False  # before the parallel loop: only inputs at literal indexes
    skips: bool = False  # directly in the parallel loop: `continue` ends the iteration


class Generator:
    """Draws programs from ``rng``, which is `random.Random` or Hypothesis' imitation of it."""

    def __init__(self, rng: random.Random, prefix: str) -> None:
        self.rng = rng
        self.prefix = prefix
        self.program = Program()
        self.count = 0
        self.scratch = rng.choice(oracle.INTEGERS)
        self.local = rng.choice(oracle.INTEGERS)

    # --- small choices

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{self.prefix}{kind}{self.count}"

    # --- expressions

    def literal(self) -> Expr:
        kind = self.rng.randrange(10)
        if kind < 6:
            number = self.rng.randrange(-3, 12)
        elif kind < 8:
            number = self.rng.choice(oracle.interesting_integers(self.rng.choice(oracle.INTEGERS)))
        else:
            number = self.rng.randrange(-(2**31), 2**31)
        name = next(t for t in ("i32", "i64", "u64") if oracle.limits(t)[0] <= number <= oracle.limits(t)[1])
        text = str(number) if number >= 0 else f"({number})"
        return Expr(text, text, name, literal=number >= 0)

    def leaf(self, scope: _Scope) -> Expr:
        kind = self.rng.randrange(10)
        if kind < 4 and scope.locals:
            name = self.rng.choice(sorted(scope.locals))
            return Expr(name, name, scope.locals[name])
        if kind < 5 and scope.indices:
            name = self.rng.choice(scope.indices)
            return Expr(name, name, "i64", literal=True)
        if kind < 8 and scope.arrays:
            return self.load(scope)
        if kind < 8 and scope.outer:
            array = f"in_{self.rng.choice(oracle.INTEGERS)}[{self.rng.randrange(INPUTS)}]"
            return Expr(array, array, array[3:].partition("[")[0])
        return self.literal()

    def load(self, scope: _Scope) -> Expr:
        array, name, index = self.element(scope, self.rng.randrange(6))
        return Expr(f"{array}[{index.tack}]", f"{array}[{index.python}]", name)

    def element(self, scope: _Scope, kind: int) -> tuple[str, str, Expr]:
        """An array, its type, and an index inside its bounds. ``kind`` 0-3 input, 4 scratch, 5 local."""
        if kind < 4:
            name = self.rng.choice(oracle.INTEGERS)
            index = self.bounded(scope, INPUTS) if self.chance(40) else Expr("j", "j", "i64")
            return f"in_{name}", name, index
        if kind == 4:
            index = self.bounded(scope, SCRATCH)
            return (
                f"s_{self.scratch}",
                self.scratch,
                Expr(f"i * 4 + {index.tack}", f"i * 4 + {index.python}", "i64"),
            )
        return f"{self.prefix}loc", self.local, self.bounded(scope, LOCAL)

    def bounded(self, scope: _Scope, size: int) -> Expr:
        """An index expression in [0, size), a power of two."""
        if self.chance(60):
            number = self.rng.randrange(size)
            return Expr(str(number), str(number), "i32")
        inner = self.expression(scope, 1)
        if inner.type == "u64":  # added to an i64 below
            inner = self.cast(inner, "i64")
        return Expr(f"({inner.tack} & {size - 1})", f"({inner.python} & {size - 1})", "i64")

    def expression(self, scope: _Scope, depth: int) -> Expr:
        if depth <= 0 or self.chance(15):
            return self.leaf(scope)
        kind = self.rng.randrange(20)
        if kind < 9:
            return self.binary(scope, depth)
        if kind < 11:
            return self.shift(scope, depth)
        if kind < 13:
            return self.unary(scope, depth)
        if kind < 15:
            return self.cast(self.expression(scope, depth - 1), self.rng.choice(oracle.INTEGERS))
        if kind < 16:
            return self.choose(scope, depth)
        if kind < 18:
            return self.condition(scope, depth)
        if kind < 19 and self.program.functions:
            return self.call(scope, depth)
        return self.extreme(scope, depth)

    def cast(self, inner: Expr, name: str) -> Expr:
        return Expr(f"tack.{name}({inner.tack})", f"w_{name}({inner.python})", name)

    def compatible(self, a: Expr, b: Expr) -> tuple[Expr, Expr, str]:
        """The operands, one of them cast if signed meets u64, and the type both become."""
        name = oracle.promote(a.type, b.type)
        if name is None:
            if (a if a.type[0] == "i" else b).literal:
                return a, b, "u64"
            if self.chance(50):
                a = self.cast(a, b.type)
            else:
                b = self.cast(b, a.type)
            name = a.type
        if a.literal and b.literal and a.tack.isdigit() and b.tack.isdigit():
            # Two literals may be folded at their own width: keep to what both readings give.
            a = self.cast(a, "u64" if b.type == "u64" else "i32")
            name = oracle.promote(a.type, b.type)
            assert name is not None
        return a, b, name

    def convert(self, e: Expr, name: str) -> str:
        """The Python text of an operand in the type of the operation (only u64 changes values)."""
        return f"w_u64({e.python})" if name == "u64" and e.type[0] == "i" else e.python

    def binary(self, scope: _Scope, depth: int) -> Expr:
        a, b = self.expression(scope, depth - 1), self.expression(scope, depth - 1)
        a, b, name = self.compatible(a, b)
        op = self.rng.choice(("+", "-", "*", "&", "|", "^", "//", "%"))
        x, y = self.convert(a, name), self.convert(b, name)
        inner = {"//": f"div({x}, {y})", "%": f"mod({x}, {y})"}.get(op, f"({x} {op} {y})")
        return Expr(f"({a.tack} {op} {b.tack})", f"w_{name}({inner})", name)

    def shift(self, scope: _Scope, depth: int) -> Expr:
        a, b = self.expression(scope, depth - 1), self.expression(scope, depth - 1)
        kind = self.rng.randrange(5)
        if kind < 2:
            return Expr(f"({a.tack} << {b.tack})", f"shl_{a.type}({a.python}, {b.python})", a.type)
        if kind < 4:
            return Expr(f"({a.tack} >> {b.tack})", f"shr_{a.type}({a.python}, {b.python})", a.type)
        if b.tack.startswith("(-"):  # a negative literal exponent is refused
            b = self.cast(b, "i64")
        return Expr(f"({a.tack} ** {b.tack})", f"power_{a.type}({a.python}, {b.python})", a.type)

    def unary(self, scope: _Scope, depth: int) -> Expr:
        a = self.expression(scope, depth - 1)
        kind = self.rng.randrange(6)
        if a.literal and kind < 3:  # a literal takes its type with its sign
            a = self.cast(a, a.type)
        if kind == 0:
            return Expr(f"(-{a.tack})", f"w_{a.type}(-{a.python})", a.type)
        if kind == 1:
            return Expr(f"(~{a.tack})", f"w_{a.type}(~{a.python})", a.type)
        if kind == 2:
            return Expr(f"abs({a.tack})", f"w_{a.type}(abs({a.python}))", a.type)
        name = ("popcount", "clz", "ctz")[kind - 3]
        return Expr(f"{name}({a.tack})", f"{name}_{a.type}({a.python})", "i32")

    def choose(self, scope: _Scope, depth: int) -> Expr:
        condition = self.truth(scope, depth - 1)
        a, b, name = self.compatible(self.expression(scope, depth - 1), self.expression(scope, depth - 1))
        x, y = self.convert(a, name), self.convert(b, name)
        return Expr(
            f"({a.tack} if {condition.tack} else {b.tack})", f"({x} if {condition.python} else {y})", name
        )

    def extreme(self, scope: _Scope, depth: int) -> Expr:
        a, b, name = self.compatible(self.expression(scope, depth - 1), self.expression(scope, depth - 1))
        function = self.rng.choice(("min", "max"))
        x, y = self.convert(a, name), self.convert(b, name)
        return Expr(f"{function}({a.tack}, {b.tack})", f"{function}({x}, {y})", name)

    def call(self, scope: _Scope, depth: int) -> Expr:
        function = self.rng.choice(self.program.functions)
        arguments = [self.cast(self.expression(scope, depth - 1), name) for name in function.params]
        tack = ", ".join(a.tack for a in arguments)
        python = ", ".join(a.python for a in arguments)
        return Expr(f"{function.name}({tack})", f"{function.name}({python})", function.result)

    def condition(self, scope: _Scope, depth: int) -> Expr:
        """A comparison or logic: i32 0 or 1."""
        kind = self.rng.randrange(6)
        if kind < 3:
            a, b, name = self.compatible(self.expression(scope, depth - 1), self.expression(scope, depth - 1))
            op = self.rng.choice(oracle.COMPARISONS)
            x, y = self.convert(a, name), self.convert(b, name)
            return Expr(f"({a.tack} {op} {b.tack})", f"int({x} {op} {y})", "i32")
        if kind == 3:
            middle = self.cast(self.expression(scope, depth - 1), "i32")
            ends = [
                self.cast(
                    self.expression(scope, depth - 1), self.rng.choice(("i8", "i16", "u16", "i32", "u32"))
                )
                for _ in "ab"
            ]
            ops = [self.rng.choice(oracle.COMPARISONS) for _ in "ab"]
            return Expr(
                f"({ends[0].tack} {ops[0]} {middle.tack} {ops[1]} {ends[1].tack})",
                f"int({ends[0].python} {ops[0]} {middle.python} {ops[1]} {ends[1].python})",
                "i32",
            )
        a, b = self.truth(scope, depth - 1), self.truth(scope, depth - 1)
        if kind == 4:
            op = self.rng.choice(("and", "or"))
            return Expr(f"({a.tack} {op} {b.tack})", f"int(bool({a.python} {op} {b.python}))", "i32")
        return Expr(f"(not {a.tack})", f"int(not {a.python})", "i32")

    def truth(self, scope: _Scope, depth: int) -> Expr:
        return self.condition(scope, depth) if self.chance(75) else self.expression(scope, depth)

    # --- statements

    def block(self, scope: _Scope, depth: int, indent: str, size: int) -> tuple[list[str], list[str]]:
        tack: list[str] = []
        python: list[str] = []
        for _ in range(size):
            t, p = self.statement(scope, depth, indent)
            tack += t
            python += p
        return tack, python

    def assign(self, scope: _Scope, indent: str) -> tuple[list[str], list[str]]:
        """To a local: any value whose type the local's type holds, or an explicit cast."""
        name = self.rng.choice(sorted(scope.locals))
        kind = scope.locals[name]
        value = self.expression(scope, self.rng.choice((1, 2, 2, 3)))
        if self.chance(30):
            value = self.cast(value, kind)
        a, b, joined = Expr(name, name, kind), value, oracle.promote(kind, value.type)
        if self.chance(40):
            if joined != kind:
                b = self.cast(b, kind)
            op = self.rng.choice(("+", "-", "*", "&", "|", "^", "//", "%"))
            inner = {"//": f"div({a.python}, {b.python})", "%": f"mod({a.python}, {b.python})"}.get(
                op, f"{a.python} {op} {b.python}"
            )
            return [f"{indent}{name} {op}= {b.tack}"], [f"{indent}{name} = w_{kind}({inner})"]
        if joined != kind:
            b = self.cast(b, kind)
        return [f"{indent}{name} = {b.tack}"], [f"{indent}{name} = {b.python}"]

    def swap(self, scope: _Scope, indent: str) -> tuple[list[str], list[str]]:
        names = [self.rng.choice(sorted(scope.locals)) for _ in "ab"]
        kinds = [scope.locals[n] for n in names]
        values = [self.cast(self.expression(scope, 2), k) for k in kinds]
        left = ", ".join(names)
        # CPython 3.11.2 keeps the first value in ``a, a = x, y``, and not the last.
        oracle = left if names[0] != names[1] else f"_, {names[1]}"
        return (
            [f"{indent}{left} = {', '.join(v.tack for v in values)}"],
            [f"{indent}{oracle} = {', '.join(v.python for v in values)}"],
        )

    def store(self, scope: _Scope, indent: str) -> tuple[list[str], list[str]]:
        array, kind, index = self.element(scope, self.rng.choice((4, 5)))
        value = self.expression(scope, 2)
        target = f"{array}[{index.tack}]", f"{array}[{index.python}]"
        if self.chance(30):
            if oracle.promote(kind, value.type) is None:
                value = self.cast(value, kind)
            name = oracle.promote(kind, value.type)
            op = self.rng.choice(("+", "-", "*", "^"))
            return (
                [f"{indent}{target[0]} {op}= {value.tack}"],
                [f"{indent}{target[1]} = w_{kind}(w_{name}({target[1]} {op} {value.python}))"],
            )
        return [f"{indent}{target[0]} = {value.tack}"], [f"{indent}{target[1]} = w_{kind}({value.python})"]

    def branch(self, scope: _Scope, depth: int, indent: str) -> tuple[list[str], list[str]]:
        tack: list[str] = []
        python: list[str] = []
        keyword = "if"
        for _ in range(self.rng.choice((1, 1, 2))):
            condition = self.truth(scope, self.rng.randrange(1, 3))
            t, p = self.block(scope, depth - 1, indent + "    ", self.rng.randrange(1, 3))
            tack += [f"{indent}{keyword} {condition.tack}:", *t]
            python += [f"{indent}{keyword} {condition.python}:", *p]
            keyword = "elif"
        if self.chance(50):
            t, p = self.block(scope, depth - 1, indent + "    ", self.rng.randrange(1, 3))
            tack += [f"{indent}else:", *t]
            python += [f"{indent}else:", *p]
        return tack, python

    def loop(self, scope: _Scope, depth: int, indent: str) -> tuple[list[str], list[str]]:
        inner = indent + "    "
        body = _Scope(dict(scope.locals), list(scope.indices), scope.arrays, scope.returns, scope.loops + 1)
        size = self.rng.randrange(1, 4)
        if self.chance(40):
            fuel = self.fresh("n")
            condition = self.truth(scope, self.rng.randrange(1, 3))
            t, p = self.block(body, depth - 1, inner, size)
            head = [f"{indent}{fuel} = 0"]
            limit = self.rng.randrange(1, 6)
            return (
                [*head, f"{indent}while {fuel} < {limit} and {condition.tack}:", f"{inner}{fuel} += 1", *t],
                [*head, f"{indent}while {fuel} < {limit} and {condition.python}:", f"{inner}{fuel} += 1", *p],
            )
        name = self.fresh("k")
        parts = []
        for low, high in ((-3, 4), (-2, 7)):
            if self.chance(50):
                number = str(self.rng.randrange(low, high))
                parts.append((number, number))
            else:
                e = self.cast(self.expression(scope, 1), "i32")
                parts.append((f"({e.tack} % {high}) + {low}", f"({e.python} % {high}) + {low}"))
        step = self.rng.randrange(1, 4)
        arguments = [", ".join(p[k] for p in parts) + (f", {step}" if step > 1 else "") for k in (0, 1)]
        body.indices.append(name)
        t, p = self.block(body, depth - 1, inner, size)
        return [f"{indent}for {name} in range({arguments[0]}):", *t], [
            f"{indent}for {name} in range({arguments[1]}):",
            *p,
        ]

    def leave(self, scope: _Scope, indent: str) -> tuple[list[str], list[str]]:
        """A guarded break, continue or return."""
        condition = self.truth(scope, self.rng.randrange(1, 3))
        words: list[tuple[str, str]] = []
        if scope.loops:
            words += [("break", "break"), ("continue", "continue")]
        if scope.returns:
            value = self.cast(self.expression(scope, 2), scope.returns)
            words.append((f"return {value.tack}", f"return {value.python}"))
        if scope.skips:
            words.append(("continue", "return 0"))
        if not words:
            return self.assign(scope, indent)
        tack, python = self.rng.choice(words)
        return [f"{indent}if {condition.tack}:", f"{indent}    {tack}"], [
            f"{indent}if {condition.python}:",
            f"{indent}    {python}",
        ]

    def statement(self, scope: _Scope, depth: int, indent: str) -> tuple[list[str], list[str]]:
        kind = self.rng.randrange(20)
        if kind < 4 and depth > 0:
            return self.branch(scope, depth, indent)
        if kind < 7 and depth > 0 and scope.loops < 3:
            return self.loop(scope, depth, indent)
        if kind < 9:
            return self.leave(scope, indent)
        if kind < 12 and scope.arrays:
            return self.store(scope, indent)
        if kind < 13:
            return self.swap(scope, indent)
        return self.assign(scope, indent)

    # --- functions and programs

    def begin(self, scope: _Scope, indent: str, names: int) -> tuple[list[str], list[str]]:
        """Gives each new local a value of its type, or of a narrower one that a later assignment widens."""
        tack, python = [], []
        for _ in range(names):
            kind = self.rng.choice(oracle.INTEGERS)
            first = self.rng.choice([t for t in oracle.INTEGERS if oracle.promote(t, kind) == kind])
            value = self.cast(self.expression(scope, 1), first)
            name = self.fresh("v")
            tack.append(f"{indent}{name} = {value.tack}")
            python.append(f"{indent}{name} = {value.python}")
            if first != kind:  # never runs, but settles the type
                tack += [f"{indent}if {name} != {name}:", f"{indent}    {name} = tack.{kind}(0)"]
            scope.locals[name] = kind
        return tack, python

    def outer(self, scope: _Scope) -> tuple[list[str], list[str]]:
        """Statements before the parallel loop; each iteration starts with the locals they leave."""
        outer = _Scope(arrays=False, outer=True)
        tack, python = self.begin(outer, "    ", self.rng.randrange(1, 3))
        if self.chance(60):
            t, p = self.branch(outer, 1, "    ")
            tack += t
            python += p
        scope.locals |= outer.locals
        return tack, python

    def function(self) -> None:
        params = [self.rng.choice(oracle.INTEGERS) for _ in range(self.rng.randrange(1, 4))]
        result = self.rng.choice(oracle.INTEGERS)
        name = self.fresh("f")
        names = [f"{name}_{k}" for k in range(len(params))]
        scope = _Scope(dict(zip(names, params, strict=True)), arrays=False, returns=result)
        tack, python = self.begin(scope, "    ", self.rng.randrange(0, 2))
        t, p = self.block(scope, 1, "    ", self.rng.randrange(1, 3))
        final = self.cast(self.expression(scope, 2), result)
        head = f"def {name}({', '.join(names)}):"
        self.program.functions.append(
            Function(
                name,
                params,
                result,
                ["@tack.func", head, *tack, *t, f"    return {final.tack}"],
                [head, *python, *p, f"    return {final.python}"],
            )
        )

    def generate(self, last: bool) -> Program:
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            self.function()
        program = self.program
        program.returns = self.chance(50)
        program.result = self.rng.choice(oracle.INTEGERS)
        scope = _Scope(
            returns=program.result if program.returns else None, skips=last and not program.returns
        )
        before: list[str] = []
        if not program.returns and self.chance(50):
            program.before, before = self.outer(scope)
        loc = f"{self.prefix}loc"
        # Filled before anything can read it; its size is fixed, so the loop may be too.
        tack = [
            f"    {loc} = tack.local_array({LOCAL}, tack.{self.local})",
            f"    for {self.prefix}z in range({LOCAL}):",
            f"        {loc}[{self.prefix}z] = in_i64[{self.prefix}z] + j",
        ]
        python = [*before, f"    {loc} = [w_{self.local}(w_i64(in_i64[z] + j)) for z in range({LOCAL})]"]
        t, p = self.begin(scope, "    ", self.rng.choice((1, 2, 2, 3)))
        tack += t
        python += p
        t, p = self.block(scope, 2, "    ", self.rng.randrange(1, 4))
        program.tack = tack + t
        program.python = python + p
        final = self.cast(self.expression(scope, 2), program.result)
        mixed = final
        for name in sorted(scope.locals):
            other = self.cast(Expr(name, name, scope.locals[name]), program.result)
            mixed = Expr(f"{mixed.tack} ^ {other.tack}", f"{mixed.python} ^ {other.python}", program.result)
        keyword = "return " if program.returns else f"{self.prefix}result = "
        program.tack.append(f"    {keyword}{mixed.tack}")
        program.python.append(f"    return {mixed.python}")
        return program


ARRAYS = [f"in_{t}" for t in oracle.INTEGERS] + [f"s_{t}" for t in oracle.INTEGERS]


def kernel_source(programs: list[Program]) -> str:
    """One kernel that runs each program in turn in every iteration; ``out`` has n results of each."""
    lines: list[str] = []
    before: list[str] = []
    body: list[str] = []
    arrays = ", ".join(ARRAYS)
    for number, program in enumerate(programs):
        for function in program.functions:
            lines += [*function.tack, ""]
        store = f"        out[{number} * n + i] = tack.i64("
        if program.returns:
            lines += ["@tack.func", f"def program{number}(i, j, {arrays}):", *program.tack, ""]
            body.append(f"{store}program{number}(i, j, {arrays}))")
        else:
            before += program.before
            body += ["    " + line for line in program.tack]
            prefix = program.tack[-1].split("=")[0].strip()
            body.append(f"{store}{prefix})")
    head = ["@tack.kernel", f"def kernel(out, n, {arrays}):", *before]
    loop = ["    for i in range(n):", f"        j = i % {INPUTS}"]
    return "\n".join([*lines, *head, *loop, *body, ""])


def python_source(programs: list[Program]) -> str:
    """The same programs as Python functions ``program0(i, j, ...)``."""
    lines: list[str] = []
    for number, program in enumerate(programs):
        for function in program.functions:
            lines += [*function.python, ""]
        lines += [f"def program{number}(i, j, {', '.join(ARRAYS)}):", *program.python, ""]
    return "\n".join(lines)


def namespace() -> dict[str, Any]:
    """The globals of a `python_source`."""
    return dict(_PRELUDE)
