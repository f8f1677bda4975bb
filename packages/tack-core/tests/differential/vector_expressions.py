"""Random expressions of vectors and numbers, as pairs of texts; `vectors` makes programs of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from conformance import oracle

from .runner import on_device
from .vector_model import COMPARE, EXACT

SLOTS = 4  # elements of each iteration's own part of an array of vectors
INTEGERS = (*oracle.INTEGERS, "i32", "i32")
FLOATS = ("f32", "f64", "f32")
HELD = {"f32": 2**12, "f64": 2**20}  # in variables and arrays: a product of two is exact
SHORT = {"f32": "vec", "i32": "ivec", "f64": "dvec"}


@dataclass(frozen=True)
class Expr:
    """An expression's two texts, its element type and width (0: a number), and its largest magnitude."""

    tack: str
    python: str
    type: str
    width: int = 0
    bound: int = 0
    literal: bool = False


@dataclass(frozen=True)
class Kind:
    """A type of variables."""

    type: str
    width: int

    def constructor(self, name: str) -> str:
        if name in SHORT:
            return f"tack.{SHORT[name]}{self.width}"
        return f"tack.vector({self.width}, tack.{name})"

    @property
    def text(self) -> str:
        return self.constructor(self.type) if self.width else f"tack.{self.type}"

    @property
    def bound(self) -> int:
        return HELD.get(self.type) or -oracle.limits(self.type)[0] or oracle.limits(self.type)[1]


@dataclass
class Function:
    """A device function, whose parameters are cast to at each call."""

    name: str
    params: list[Kind]
    results: list[Kind]
    tack: list[str]
    python: list[str]


@dataclass
class Program:
    tack: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


@dataclass
class Scope:
    """What may be used at one point: variables, indices of loops, and arrays of vectors by text of base."""

    variables: dict[str, Kind] = field(default_factory=dict)
    indices: list[str] = field(default_factory=list)
    arrays: dict[str, tuple[Kind, str]] = field(default_factory=dict)
    results: list[Kind] | None = None
    loops: int = 0


class Expressions:
    """Draws expressions for a program over arrays of vectors of the given kinds."""

    def __init__(self, rng: random.Random, prefix: str, arrays: list[Kind]) -> None:
        self.rng = rng
        self.prefix = prefix
        self.arrays = arrays
        self.program = Program()
        self.count = 0

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{self.prefix}{letter}{self.count}"

    def kind(self, width: int | None = None) -> Kind:
        width = self.rng.choice((0, 2, 3, 4, 3)) if width is None else width
        return Kind(on_device(self.rng.choice(FLOATS if self.chance(40) else INTEGERS)), width)

    # --- making types meet

    def cast(self, e: Expr, name: str) -> Expr:
        if e.literal:
            e = replace(e, literal=False)
        bound = Kind(name, 0).bound if name[0] != "f" else e.bound
        call = f"tack.{name}({e.tack})"
        return Expr(call, f"convert({name!r}, {e.python})", name, e.width, bound)

    def clamp(self, e: Expr) -> Expr:
        """A float within -50 to 50; an integer within 0 to 63."""
        if e.literal:
            return e
        if e.type[0] == "f":
            low = f"binary('min', {e.type!r}, {e.python}, 50)"
            text = f"max(min({e.tack}, 50), -50)"
            return Expr(text, f"binary('max', {e.type!r}, {low}, -50)", e.type, e.width, 50)
        name = oracle.promote(e.type, "i32") or "u64"
        return Expr(f"({e.tack} & 63)", f"binary('&', {name!r}, {e.python}, 63)", name, e.width, 63)

    def fit(self, e: Expr, kind: Kind) -> Expr:
        """The expression as a value for a variable of ``kind``; its width is the caller's business."""
        joined = oracle.promote(e.type, kind.type)
        if joined != kind.type or (e.type != kind.type and self.chance(50)):
            if kind.type == "f32" and e.type == "f64":
                e = self.cast(e, "f32")  # rounds to nearest
            elif kind.type[0] == "f" and e.type[0] != "f" and e.bound > HELD[kind.type]:
                e = self.cast(self.clamp(e), kind.type)
            else:
                e = self.cast(e, kind.type)
        if kind.type[0] == "f" and e.bound > HELD[kind.type]:
            e = self.clamp(e)
        if e.type != kind.type and kind.type[0] == "f" and e.type[0] == "f":
            e = self.cast(e, kind.type)
        return replace(e, python=f"convert({kind.type!r}, {e.python})") if e.type != kind.type else e

    def meet(self, a: Expr, b: Expr) -> tuple[Expr, Expr, str]:
        """Two operands and the type that both become; at most one is a literal."""
        if a.literal and b.literal:
            a = self.cast(a, "i32" if a.type == "i32" else a.type)
        for x, y in ((a, b), (b, a)):
            if x.literal and x.type == "f32":  # a weak literal takes an f64 operand's type
                return a, b, "f64" if y.type == "f64" else "f32"
        name = oracle.promote(a.type, b.type)
        if name is None:
            b = self.cast(b, a.type)
            name = a.type
        return a, b, name

    def widths(self, width: int) -> tuple[int, int]:
        """Widths of two operands whose result has ``width``."""
        if not width:
            return 0, 0
        return self.rng.choice(((width, width), (width, width), (width, 0), (0, width)))

    # --- expressions

    def literal(self) -> Expr:
        number = self.rng.randrange(-4, 10)
        if self.chance(30):
            text = f"{float(number)}" if number >= 0 else f"({float(number)})"
            return Expr(text, text, "f32", 0, abs(number), literal=True)
        text = str(number) if number >= 0 else f"({number})"
        return Expr(text, text, "i32", 0, abs(number), literal=True)

    def leaf(self, scope: Scope, width: int) -> Expr:
        found = [n for n, k in scope.variables.items() if k.width == width]
        if found and self.chance(60):
            name = self.rng.choice(found)
            return Expr(name, name, scope.variables[name].type, width, scope.variables[name].bound)
        if width:
            arrays = [a for a, (k, _) in scope.arrays.items() if k.width == width]
            if arrays and self.chance(70):
                return self.element(scope, self.rng.choice(arrays))
            return self.construct(scope, width, 0)
        if scope.indices and self.chance(30):
            name = self.rng.choice(scope.indices)
            return Expr(f"tack.i32({name})", name, "i32", 0, 2**31)
        wide = [n for n, k in scope.variables.items() if k.width]
        if wide and self.chance(60):
            name = self.rng.choice(wide)
            kind = scope.variables[name]
            return self.component(scope, Expr(name, name, kind.type, kind.width, kind.bound))
        return self.literal()

    def element(self, scope: Scope, array: str) -> Expr:
        kind, base = scope.arrays[array]
        index = self.place(scope, base)
        return Expr(f"{array}[{index.tack}]", f"{array}[{index.python}]", kind.type, kind.width, kind.bound)

    def place(self, scope: Scope, base: str) -> Expr:
        """An index into an iteration's own part of an array."""
        if self.chance(60):
            number = self.rng.randrange(SLOTS)
            return Expr(f"{base}{number}", f"{base}{number}", "i64")
        inner = self.index(scope)
        return Expr(f"{base}({inner.tack} & 3)", f"{base}({inner.python} & 3)", "i64")

    def index(self, scope: Scope) -> Expr:
        """A run-time index, often in the range of a vector's components."""
        inner = self.literal() if self.chance(40) else self.expression(scope, 0, 1)
        if inner.type in ("u64", "f32", "f64") or inner.literal:
            inner = self.cast(inner, "i64")
        if self.chance(70):
            name = oracle.promote(inner.type, "i32") or "i64"
            return Expr(f"({inner.tack} % 4)", f"binary('%', {name!r}, {inner.python}, 4)", name)
        return inner

    def component(self, scope: Scope, v: Expr) -> Expr:
        kind = self.rng.randrange(4)
        c = self.rng.randrange(v.width)
        number = replace(v, width=0)
        if kind == 0:
            return replace(number, tack=f"{v.tack}[{c}]", python=f"{v.python}[{c}]")
        if kind == 1:
            index = self.index(scope)
            return replace(number, tack=f"{v.tack}[{index.tack}]", python=f"read({v.python}, {index.python})")
        letters = self.rng.choice(("xyzw", "rgba"))
        return replace(number, tack=f"{v.tack}.{letters[c]}", python=f"{v.python}[{c}]")

    def swizzle(self, scope: Scope, width: int, depth: int) -> Expr:
        v = self.expression(scope, self.rng.choice((2, 3, 4)), depth)
        letters = self.rng.choice(("xyzw", "rgba"))
        picked = [self.rng.randrange(v.width) for _ in range(width)]
        python = f"tuple(map(({v.python}).__getitem__, {picked}))"
        return replace(v, tack=f"{v.tack}.{''.join(letters[c] for c in picked)}", python=python, width=width)

    def construct(self, scope: Scope, width: int, depth: int) -> Expr:
        name = self.kind().type
        kind = Kind(name, width)
        if self.chance(20):
            e = self.expression(scope, 0, depth)
            if e.literal:
                e = self.cast(e, e.type)
            e = self.fit(e, Kind(name, 0))
            return Expr(f"{kind.text}({e.tack})", f"spread({width}, {e.python})", name, width, kind.bound)
        parts = [self.expression(scope, 0, depth) for _ in range(width)]
        parts = [self.fit(self.cast(p, p.type) if p.literal else p, Kind(name, 0)) for p in parts]
        python = f"({', '.join(p.python for p in parts)},)"
        inner = ", ".join(p.tack for p in parts)
        if self.chance(30):
            joined = f"[{', '.join(self.cast(p, name).tack for p in parts)}]"
            return Expr(joined, python, name, width, kind.bound)
        return Expr(f"{kind.text}({inner})", python, name, width, kind.bound)

    def expression(self, scope: Scope, width: int, depth: int) -> Expr:
        if depth <= 0 or self.chance(10):
            return self.leaf(scope, width)
        kind = self.rng.randrange(20)
        if kind < 7:
            return self.arithmetic(scope, width, depth)
        if kind < 9:
            return self.integers(scope, width, depth)
        if kind < 10:
            return self.unary(scope, width, depth)
        if kind < 11:
            e = self.expression(scope, width, depth - 1)
            return self.cast(e if e.type[0] != "f" else self.clamp(e), self.kind().type)
        if kind < 13:
            return self.choose(scope, width, depth)
        if kind < 14:
            return self.mask(scope, width, depth)
        if kind < 16:
            return self.extreme(scope, width, depth)
        if kind < 17:
            called = self.call(scope, width, depth)
            return called or self.leaf(scope, width)
        if width:
            swizzles = self.chance(60)
            return (
                self.swizzle(scope, width, depth - 1) if swizzles else self.construct(scope, width, depth - 1)
            )
        return self.reduce(scope, depth)

    def arithmetic(self, scope: Scope, width: int, depth: int) -> Expr:
        left, right = self.widths(width)
        a, b = self.expression(scope, left, depth - 1), self.expression(scope, right, depth - 1)
        a, b, name = self.meet(a, b)
        op = self.rng.choice("+-*")
        if name[0] != "f":
            return self.joined(op, name, a, b, width, Kind(name, 0).bound)
        if (a.bound * b.bound if op == "*" else a.bound + b.bound) > EXACT[name] or max(
            a.bound, b.bound
        ) > EXACT[name]:
            a, b = self.clamp(a), self.clamp(b)
            a, b, name = self.meet(a, b)
        bound = a.bound * b.bound if op == "*" else a.bound + b.bound
        if op == "*" and a.width == width and not a.literal and self.chance(20):
            op, b = self.rng.choice(("//", "%")), Expr("3.0", "3.0", "f32", 0, 3, literal=True)
            a = self.cast(a, name) if a.type != name else a
            return self.joined(op, name, a, b, width, a.bound + 3)
        return self.joined(op, name, a, b, width, bound)

    def joined(self, op: str, name: str, a: Expr, b: Expr, width: int, bound: int) -> Expr:
        python = f"binary({op!r}, {name!r}, {a.python}, {b.python})"
        text = f"{op}({a.tack}, {b.tack})" if op.isalpha() else f"({a.tack} {op} {b.tack})"
        return Expr(text, python, name, width, bound)

    def integer(self, scope: Scope, width: int, depth: int) -> Expr:
        e = self.expression(scope, width, depth)
        return self.cast(e, self.rng.choice(INTEGERS)) if e.type[0] == "f" else e

    def integers(self, scope: Scope, width: int, depth: int) -> Expr:
        left, right = self.widths(width)
        a, b = self.integer(scope, left, depth - 1), self.integer(scope, right, depth - 1)
        op = self.rng.choice(("&", "|", "^", "//", "%", "<<", ">>"))
        if op in ("<<", ">>"):
            a = self.cast(a, a.type) if a.literal else a
            b = self.cast(b, b.type) if b.literal else b
            python = f"shift({op!r}, {a.type!r}, {a.python}, {b.python})"
            return Expr(f"({a.tack} {op} {b.tack})", python, a.type, width, Kind(a.type, 0).bound)
        a, b, name = self.meet(a, b)
        return self.joined(op, name, a, b, width, Kind(name, 0).bound)

    def unary(self, scope: Scope, width: int, depth: int) -> Expr:
        e = self.expression(scope, width, depth - 1)
        e = self.cast(e, e.type) if e.literal else e
        kind = self.rng.randrange(3)
        if kind == 0 and e.type[0] != "f":
            return replace(e, tack=f"(~{e.tack})", python=f"invert({e.type!r}, {e.python})")
        if kind == 1:
            return replace(e, tack=f"abs({e.tack})", python=f"absolute({e.type!r}, {e.python})")
        return replace(e, tack=f"(-{e.tack})", python=f"negative({e.type!r}, {e.python})")

    def mask(self, scope: Scope, width: int, depth: int) -> Expr:
        """A comparison or logic: 0 and 1."""
        kind = self.rng.randrange(5)
        if depth > 1 and kind == 0:
            a, b = self.mask(scope, width, depth - 1), self.mask(scope, width, depth - 1)
            op = self.rng.choice(("and", "or"))
            return Expr(
                f"({a.tack} {op} {b.tack})", f"logic({op!r}, {a.python}, {b.python})", "i32", width, 1
            )
        if depth > 1 and kind == 1:
            a = self.mask(scope, width, depth - 1)
            return Expr(f"(not {a.tack})", f"negate({a.python})", "i32", width, 1)
        left, right = self.widths(width)
        a, b = self.expression(scope, left, depth - 1), self.expression(scope, right, depth - 1)
        a, b, name = self.meet(a, b)
        op = self.rng.choice(tuple(COMPARE))
        python = f"compare({op!r}, {name!r}, {a.python}, {b.python})"
        return Expr(f"({a.tack} {op} {b.tack})", python, "i32", width, 1)

    def truth(self, scope: Scope, depth: int) -> Expr:
        """A condition."""
        if self.chance(50):
            return self.mask(scope, 0, depth)
        m = self.mask(scope, self.rng.choice((2, 3, 4)), depth)
        name = self.rng.choice(("any", "all"))
        return Expr(f"{name}({m.tack})", f"int({name}({m.python}))", "i32", 0, 1)

    def choose(self, scope: Scope, width: int, depth: int) -> Expr:
        left, right = self.widths(width)
        if width and self.chance(50):
            m = self.mask(scope, width, depth - 1)
        else:
            m, left, right = self.truth(scope, depth - 1), width, width
        a, b = self.expression(scope, left, depth - 1), self.expression(scope, right, depth - 1)
        a, b, name = self.meet(a, b)
        if m.width or self.chance(50):
            text = f"where({m.tack}, {a.tack}, {b.tack})"
        else:
            text = f"({a.tack} if {m.tack} else {b.tack})"
        python = f"where({name!r}, {m.python}, {a.python}, {b.python})"
        return Expr(text, python, name, width, self.larger(name, a, b))

    def larger(self, name: str, a: Expr, b: Expr) -> int:
        return max(a.bound, b.bound) if name[0] == "f" else Kind(name, 0).bound

    def extreme(self, scope: Scope, width: int, depth: int) -> Expr:
        left, right = self.widths(width)
        a, b = self.expression(scope, left, depth - 1), self.expression(scope, right, depth - 1)
        a, b, name = self.meet(a, b)
        return self.joined(self.rng.choice(("min", "max")), name, a, b, width, self.larger(name, a, b))

    def reduce(self, scope: Scope, depth: int) -> Expr:
        """A number from a vector."""
        width = self.rng.choice((2, 3, 4))
        v = self.expression(scope, width, depth - 1)
        kind = self.rng.randrange(7)
        if kind < 2:
            return self.component(scope, v)
        if kind == 2:
            name = self.rng.choice(("min", "max"))
            text = f"{v.tack}.{name}()" if self.chance(50) else f"{name}({v.tack})"
            return replace(
                v, tack=text, python=f"{'smallest' if name == 'min' else 'largest'}({v.python})", width=0
            )
        if kind == 3:
            return self.truth(scope, depth)
        floating = v.type[0] == "f"
        v = self.clamp(v) if floating else v
        bound = width * 2500 if floating else v.bound
        if kind == 4:
            text = f"{v.tack}.sum()" if self.chance(50) else f"sum({v.tack})"
            return Expr(text, f"total({v.type!r}, {v.python})", v.type, 0, bound)
        if kind == 5:
            return Expr(f"{v.tack}.length_sq()", f"dot({v.type!r}, *[{v.python}] * 2)", v.type, 0, bound)
        v, w, name = self.meet(v, self.clamp(self.expression(scope, width, depth - 1)))
        if name[0] == "f":
            v, w = self.clamp(v), self.clamp(w)
            name = oracle.promote(v.type, w.type) or name
        text = self.rng.choice(
            (f"{v.tack}.dot({w.tack})", f"dot({v.tack}, {w.tack})", f"({v.tack} @ {w.tack})")
        )
        bound = width * 63 * 63 if name[0] == "f" else Kind(name, 0).bound
        return Expr(text, f"dot({name!r}, {v.python}, {w.python})", name, 0, bound)

    def arguments(self, scope: Scope, function: Function, depth: int) -> tuple[str, str]:
        values = []
        for kind in function.params:
            e = self.fit(self.expression(scope, kind.width, depth), kind)
            values.append(e if e.type == kind.type and not e.literal else self.cast(e, kind.type))
        return ", ".join(v.tack for v in values), ", ".join(v.python for v in values)

    def call(self, scope: Scope, width: int, depth: int) -> Expr | None:
        found = [f for f in self.program.functions if len(f.results) == 1 and f.results[0].width == width]
        if not found or scope.results is not None:
            return self.cross(scope, depth) if width == 3 else None
        function = self.rng.choice(found)
        text, python = self.arguments(scope, function, depth - 1)
        kind = function.results[0]
        return Expr(f"{function.name}({text})", f"{function.name}({python})", kind.type, width, kind.bound)

    def cross(self, scope: Scope, depth: int) -> Expr:
        a, b = (self.clamp(self.expression(scope, 3, depth - 1)) for _ in "ab")
        a, b, name = self.meet(a, b)
        if name[0] == "f":
            a, b = self.clamp(a), self.clamp(b)
            name = oracle.promote(a.type, b.type) or name
        text = self.rng.choice((f"{a.tack}.cross({b.tack})", f"cross({a.tack}, {b.tack})"))
        bound = 2 * 63 * 63 if name[0] == "f" else Kind(name, 0).bound
        return Expr(text, f"cross({name!r}, {a.python}, {b.python})", name, 3, bound)
