"""Random programs of vectors, against NumPy and Python one component at a time.

``python -m differential.vectors --count 10000 [--seed S]``, run in the tests' folder, tries more.

Every expression is a pair of texts with a static type and width. The Python text works on numbers and
tuples of numbers: Python integers wrapped by the conformance oracle, and NumPy floats. Floats hold
integers, and `Expr.bound` limits them to what their type represents exactly. So there is one right
answer, whether or not a multiply is fused with an add. Zeros are equal whatever their sign, which scalar
`min` and `max` leave open and which nothing here can tell apart.
"""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from conformance import oracle

import tack

from .runner import build, lengths, on_device
from .sweep import Trial, sweep
from .vector_expressions import FLOATS, INTEGERS, SLOTS, Expr, Expressions, Function, Kind, Program, Scope
from .vector_model import MODEL, convert

ROWS = 16  # iterations with inputs of their own; longer runs repeat them
MANY = 8 * 1024
BATCH = 4  # programs in a kernel
RESULTS = 32  # numbers that a program may report

Lines = tuple[list[str], list[str]]


class Generator(Expressions):
    """Draws programs over arrays of vectors of the given kinds."""

    def value(self, scope: Scope, kind: Kind) -> Expr:
        e = self.expression(scope, kind.width, self.rng.choice((1, 2, 2, 3)))
        e = self.cast(e, e.type) if e.literal else e
        return self.fit(e, kind)

    def block(self, scope: Scope, size: int, depth: int, indent: str) -> Lines:
        tack, python = [], []
        for _ in range(size):
            t, p = self.statement(scope, depth, indent)
            tack += t
            python += p
        return tack, python

    def statement(self, scope: Scope, depth: int, indent: str) -> Lines:
        kind = self.rng.randrange(14)
        if depth > 0 and kind < 2:
            return self.conditional(scope, depth, indent)
        if depth > 0 and kind == 2 and scope.loops < 2:
            return self.loop(scope, depth, indent)
        if kind < 6:
            return self.store(scope, indent)
        if kind < 8:
            return self.swap(scope, indent)
        if kind == 8:
            lines = self.unpack(scope, indent)
            if lines:
                return lines
        name = self.rng.choice(list(scope.variables))
        target = scope.variables[name]
        if self.chance(30):
            return self.augment(name, name, target, scope, indent)
        value = self.value(scope, target)
        return [f"{indent}{name} = {value.tack}"], [f"{indent}{name} = {value.python}"]

    def augment(self, tack: str, python: str, kind: Kind, scope: Scope, indent: str) -> Lines:
        """An augmented assignment to a variable or an element, whose text in Python is also its value."""
        width = kind.width if self.chance(60) else 0
        e = self.value(scope, Kind(kind.type, width))
        ops = ("+", "-", "*") if kind.type[0] == "f" else ("+", "-", "*", "&", "|", "^", "//", "%")
        op = self.rng.choice(ops)
        lines = [f"{indent}{tack} {op}= {e.tack}"]
        wanted = [f"{indent}{python} = binary({op!r}, {kind.type!r}, {python}, {e.python})"]
        if kind.type[0] == "f":
            e = self.clamp(Expr(tack, python, kind.type, kind.width, kind.bound))
            lines.append(f"{indent}{tack} = {e.tack}")
            wanted.append(f"{indent}{python} = {e.python}")
        return lines, wanted

    def store(self, scope: Scope, indent: str) -> Lines:
        """To a component of a variable or an element, or to an element."""
        wide = [n for n, k in scope.variables.items() if k.width]
        if scope.arrays and (not wide or self.chance(50)):
            array = self.rng.choice(list(scope.arrays))
            kind, base = scope.arrays[array]
            index = self.place(scope, base)
            # The index is kept apart: the Python text has it twice.
            at = self.fresh("e")
            before = [f"{indent}{at} = {index.tack}"], [f"{indent}{at} = {index.python}"]
            target = f"{array}[{at}]"
        elif wide:
            target = self.rng.choice(wide)
            kind, before = scope.variables[target], ([], [])
        else:
            return self.statement(scope, 0, indent)
        if before[0] and self.chance(40):
            if self.chance(50):
                lines = self.augment(target, target, kind, scope, indent)
            else:
                value = self.value(scope, kind if self.chance(80) else Kind(kind.type, 0))
                if value.width:
                    lines = [f"{indent}{target} = {value.tack}"], [f"{indent}{target} = {value.python}"]
                else:
                    wanted = (
                        f"{indent}{target} = spread({kind.width}, convert({kind.type!r}, {value.python}))"
                    )
                    lines = [f"{indent}{target} = {value.tack}"], [wanted]
        else:
            lines = self.component_store(scope, target, kind, indent)
        return before[0] + lines[0], before[1] + lines[1]

    def component_store(self, scope: Scope, target: str, kind: Kind, indent: str) -> Lines:
        c = self.rng.randrange(kind.width)
        if self.chance(40):
            index = self.index(scope)
            text, at = f"{target}[{index.tack}]", index.python
        else:
            text = self.rng.choice((f"{target}[{c}]", f"{target}.{'xyzw'[c]}", f"{target}.{'rgba'[c]}"))
            at = str(c)
        number = Kind(kind.type, 0)
        value = self.value(scope, number)
        new = f"convert({kind.type!r}, {value.python})"
        if self.chance(40):
            op = self.rng.choice("+-*")
            new = f"binary({op!r}, {kind.type!r}, read({target}, {at}), {value.python})"
            lines = (
                [f"{indent}{text} {op}= {value.tack}"],
                [f"{indent}{target} = stored({target}, {at}, {new})"],
            )
            if kind.type[0] == "f":
                e = self.clamp(Expr(target, target, kind.type, kind.width, kind.bound))
                lines[0].append(f"{indent}{target} = {e.tack}")
                lines[1].append(f"{indent}{target} = {e.python}")
            return lines
        # A store evaluates its value before its index; nothing here has effects, so one text will do.
        return [f"{indent}{text} = {value.tack}"], [f"{indent}{target} = stored({target}, {at}, {new})"]

    def swap(self, scope: Scope, indent: str) -> Lines:
        """Two variables, two components, or two elements change places."""
        kind = self.rng.randrange(3)
        wide = [n for n, k in scope.variables.items() if k.width]
        if kind == 0:
            pairs = [
                (a, b)
                for a, x in scope.variables.items()
                for b, y in scope.variables.items()
                if a != b and x == y
            ]
            if pairs:
                a, b = self.rng.choice(pairs)
                line = f"{indent}{a}, {b} = {b}, {a}"
                return [line], [line]
        if kind < 2 and wide:
            v = self.rng.choice(wide)
            width = scope.variables[v].width
            order = self.rng.sample(range(width), self.rng.randrange(2, width + 1))
            shuffled = self.rng.sample(order, len(order))
            left = ", ".join(f"{v}.{'xyzw'[c]}" for c in order)
            right = ", ".join(f"{v}.{'xyzw'[c]}" for c in shuffled)
            moved = dict(zip(order, shuffled, strict=True))
            python = ", ".join(f"{v}[{moved.get(c, c)}]" for c in range(width))
            return [f"{indent}{left} = {right}"], [f"{indent}{v} = ({python})"]
        if scope.arrays:
            array = self.rng.choice(list(scope.arrays))
            base = scope.arrays[array][1]
            a, b = self.rng.sample(range(SLOTS), 2)
            line = f"{indent}{array}[{base}{a}], {array}[{base}{b}] = {array}[{base}{b}], {array}[{base}{a}]"
            return [line], [line]
        return self.statement(scope, 0, indent)

    def unpack(self, scope: Scope, indent: str) -> Lines | None:
        """A device function's several results."""
        found = [f for f in self.program.functions if len(f.results) == 2]
        if not found or scope.results is not None:
            return None
        function = self.rng.choice(found)
        targets = []
        for kind in function.results:
            names = [n for n, k in scope.variables.items() if k == kind and n not in targets]
            if not names:
                return None
            targets.append(self.rng.choice(names))
        text, python = self.arguments(scope, function, 2)
        left = f"{indent}{', '.join(targets)} = {function.name}"
        return [f"{left}({text})"], [f"{left}({python})"]

    def conditional(self, scope: Scope, depth: int, indent: str) -> Lines:
        condition = self.truth(scope, 2)
        tack, python = [f"{indent}if {condition.tack}:"], [f"{indent}if {condition.python}:"]
        if scope.results is not None and self.chance(30):
            t, p = self.returned(scope, indent + "    ")
        else:
            t, p = self.block(scope, self.rng.randrange(1, 3), depth - 1, indent + "    ")
        tack, python = tack + t, python + p
        if self.chance(50):
            t, p = self.block(scope, self.rng.randrange(1, 3), depth - 1, indent + "    ")
            tack, python = [*tack, f"{indent}else:", *t], [*python, f"{indent}else:", *p]
        return tack, python

    def loop(self, scope: Scope, depth: int, indent: str) -> Lines:
        name = self.fresh("q")
        head = f"{indent}for {name} in range({self.rng.choice(('-1, ', ''))}{self.rng.randrange(1, 6)}):"
        inner = replace(scope, indices=[*scope.indices, name], loops=scope.loops + 1)
        tack, python = self.block(inner, self.rng.randrange(1, 3), depth - 1, indent + "    ")
        if self.chance(30):
            leave = self.truth(inner, 1)
            word = self.rng.choice(("break", "continue"))
            tack = [f"{indent}    if {leave.tack}:", f"{indent}        {word}", *tack]
            python = [f"{indent}    if {leave.python}:", f"{indent}        {word}", *python]
        return [head, *tack], [head, *python]

    def returned(self, scope: Scope, indent: str) -> Lines:
        values = [self.cast(self.value(scope, kind), kind.type) for kind in scope.results or []]
        tack, python = ", ".join(v.tack for v in values), ", ".join(v.python for v in values)
        return [f"{indent}return {tack}"], [f"{indent}return {python}"]

    def declare(self, scope: Scope, indent: str, count: int) -> Lines:
        tack, python = [], []
        for _ in range(count):
            known = list(scope.variables.values())
            kind = self.rng.choice(known) if known and self.chance(40) else self.kind()
            name = self.fresh("v")
            value = self.cast(self.value(scope, kind), kind.type)
            tack.append(f"{indent}{name} = {value.tack}")
            python.append(f"{indent}{name} = {value.python}")
            scope.variables[name] = kind
        return tack, python

    def function(self) -> Function:
        name = self.fresh("f")
        params = [self.kind() for _ in range(self.rng.randrange(1, 4))]
        results = [self.kind() for _ in range(self.rng.choice((1, 1, 2)))]
        scope = Scope({f"{name}_{k}": kind for k, kind in enumerate(params)}, results=results)
        head = f"def {name}({', '.join(scope.variables)}):"
        tack, python = self.declare(scope, "    ", 2)
        t, p = self.block(scope, self.rng.randrange(1, 5), 2, "    ")
        u, q = self.returned(scope, "    ")
        return Function(name, params, results, ["@tack.func", head, *tack, *t, *u], [head, *python, *p, *q])

    def generate(self, number: int) -> Program:
        program, indent = self.program, " " * 8
        for _ in range(self.rng.randrange(3)):
            program.functions.append(self.function())
        scope = Scope(arrays={f"m{k}": (kind, f"i * {SLOTS} + ") for k, kind in enumerate(self.arrays)})
        local = self.kind(self.rng.choice((2, 3, 4)))
        name = self.fresh("l")
        program.tack += [f"{indent}{name} = tack.local_array({SLOTS}, {local.text})"]
        program.python += [f"    {name} = [None] * {SLOTS}"]
        for slot in range(SLOTS):
            value = self.cast(self.value(scope, local), local.type)
            program.tack.append(f"{indent}{name}[{slot}] = {value.tack}")
            program.python.append(f"    {name}[{slot}] = {value.python}")
        scope.arrays[name] = local, ""
        tack, python = self.declare(scope, indent, 4)
        t, p = self.block(scope, self.rng.randrange(3, 8), 2, indent)
        tack, python = tack + t, python + p
        program.tack += tack
        program.python += [line[4:] for line in python]
        self.report(scope, number, indent)
        return program

    def report(self, scope: Scope, number: int, indent: str) -> None:
        """Stores every component of every variable."""
        slot = 0
        for name, kind in scope.variables.items():
            out = "floats" if kind.type[0] == "f" else "integers"
            for c in range(max(kind.width, 1)):
                part = f"{name}[{c}]" if kind.width else name
                base = f"i * {RESULTS * BATCH} + {number * RESULTS + slot}"
                self.program.tack.append(f"{indent}{out}[{base}] = {part}")
                cast = "convert('i64', {0})" if out == "integers" else "float({0})"
                self.program.python.append(f"    {out}[{base}] = {cast.format(part)}")
                slot += 1
        assert slot <= RESULTS


# --- running ------------------------------------------------------------------------------------


def generate(rng: random.Random, count: int = BATCH) -> tuple[list[Kind], list[Program]]:
    drawn = [(rng.choice(FLOATS + INTEGERS[:6]), rng.choice((2, 3, 4))) for _ in range(3)]
    kinds = [Kind(on_device(name), width) for name, width in drawn]
    return kinds, [Generator(rng, f"p{k}_", kinds).generate(k) for k in range(count)]


def kernel_source(programs: list[Program]) -> str:
    functions = ["\n".join(f.tack) + "\n\n" for p in programs for f in p.functions]
    body = "\n".join("\n".join(p.tack) for p in programs)
    head = "@tack.kernel\ndef kernel(integers, floats, m0, m1, m2, n):\n    for i in range(n):\n"
    return "".join(functions) + head + body + "\n"


def python_source(programs: list[Program]) -> str:
    functions = ["\n".join(f.python) + "\n\n" for p in programs for f in p.functions]
    bodies = [
        f"def program{k}(i, integers, floats, m0, m1, m2):\n" + "\n".join(p.python) + "\n\n"
        for k, p in enumerate(programs)
    ]
    return "".join(functions + bodies)


def inputs(kind: Kind) -> np.ndarray:
    """Vectors of small numbers, and of the limits for integers."""
    rng = np.random.default_rng([oracle.DTYPES.index(kind.type), kind.width])
    dtype = oracle.numpy_dtype(kind.type)
    small = rng.integers(0 if kind.type[0] == "u" else -30, 40, (ROWS * SLOTS, kind.width)).astype(dtype)
    if kind.type[0] != "f":
        edges = np.array(oracle.interesting_integers(kind.type), dtype)
        small = np.where(rng.random(small.shape) < 0.3, rng.choice(edges, small.shape), small)
    return small


def difference(kinds: list[Kind], programs: list[Program]) -> str | None:
    """A description of the first difference from the model, or None."""
    space: dict[str, Any] = {f.__name__: f for f in MODEL}
    exec(python_source(programs), space)
    start = [inputs(kind) for kind in kinds]
    size = ROWS * RESULTS * BATCH
    integers, floats = np.zeros(size, np.int64), np.zeros(size)
    arrays = [
        [tuple(convert(kind.type, x) for x in row) for row in a.tolist()]
        for kind, a in zip(kinds, start, strict=True)
    ]
    for i in range(ROWS):
        for k in range(len(programs)):
            space[f"program{k}"](i, integers, floats, *arrays)
    wanted = [integers, floats]
    wanted += [np.array(a, oracle.numpy_dtype(k.type)) for k, a in zip(kinds, arrays, strict=True)]
    kernel = build(kernel_source(programs))
    for label, n in lengths(ROWS, MANY):
        periods = n // ROWS
        got = [np.zeros(size * periods, np.int64), np.zeros(size * periods)]
        volumes = [
            tack.asarray(
                np.tile(a, (periods, 1)), dtype=tack.vector(k.width, getattr(tack, k.type)), copy=True
            )
            for k, a in zip(kinds, start, strict=True)
        ]
        kernel(*got, *volumes, n)
        got += [v.numpy() for v in volumes]
        for name, have, want in zip(("integers", "floats", "m0", "m1", "m2"), got, wanted, strict=True):
            every = np.tile(want, (periods,) + (1,) * (want.ndim - 1))
            if not np.array_equal(have, every):
                at = tuple(int(c) for c in np.argwhere(have != every)[0])
                return f"{label}: {name}{list(at)} is {have[at]}, in Python {every[at]}"
    return None


def report(kinds: list[Kind], programs: list[Program], problem: str) -> str:
    """The difference, with the one program that shows it if there is one, and both texts."""
    for program in programs:
        try:
            single = difference(kinds, [program])
        except Exception as error:
            single = f"{type(error).__name__}: {error}"
        if single is not None:
            programs, problem = [program], single
            break
    return f"{problem}\n{kinds}\n{kernel_source(programs)}\n--- Python\n{python_source(programs)}"


def trial(seed: int) -> str | None:
    kinds, programs = generate(random.Random(seed))
    try:
        problem = difference(kinds, programs)
    except Exception as error:  # a valid program that is refused is a finding too
        problem = f"{type(error).__name__}: {error}"
    return None if problem is None else report(kinds, programs, problem)


def draw(seed: int) -> Trial:
    return functools.partial(trial, seed)


if __name__ == "__main__":
    sys.exit(sweep("differential.vectors", BATCH, 10_000, draw))
