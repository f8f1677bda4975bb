"""Random kernels of workgroups, against Python that runs lanes one after the other between barriers.

``python -m differential.lanes --count 1000 [--seed S]``, run in the tests' folder, tries more.

The Python text of a program is a generator for one lane: it yields at each collective. The model runs
every lane up to its next yield, in an order drawn anew each time. So a kernel in which the order of
lanes mattered would be seen in the model too.

Between two barriers a shared array is either *owned*, each lane using one slot by a permutation of the
lanes, or *read* at any index by all. Control that holds a collective depends only on parameters, loop
variables and results of reductions. Block reductions of floats add small integers, exactly.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from conformance import oracle

from .runner import build, on_device
from .sweep import Trial, sweep

LANES = 256
BATCH = 3  # programs in a kernel
RESULTS = 10  # numbers that a lane reports
LOCAL = 4  # elements of a local array
REDUCED = ("i32", "u32", "i64", "u64")
TYPES = ("i32", "u32", "i64", "u8", "i16", "u64", "i32")
Lines = tuple[list[str], list[str]]
Pair = tuple[str, str]  # the texts for Tack and for Python

FORMS = {  # heads of the parallel loop, for a linear index i over n iterations; n is 256 or 512
    "plain": ["for i in range(n):"],
    "strided": ["for q in range(5, 5 + 3 * n, 3):", "    i = (q - 5) // 3"],
    "grid": ["for q, r in tack.ndindex(n // 64, 64):", "    i = q * 64 + r"],
    "box": ["for q, r, s in tack.ndindex(n // 128, 8, 16):", "    i = (q * 8 + r) * 16 + s"],
}


# --- the model ----------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[int, int], int]] = {**oracle.EXACT, "min": min, "max": max}


def binary(op: str, name: str, a: int, b: int) -> int:
    return oracle.wrap(name, OPERATIONS[op](a, b))


def shared(group: dict[str, list[Any]], name: str) -> list[Any]:
    """The group's array for one declaration; reading a slot that no lane has written fails in `wrap`."""
    return group.setdefault(name, [None] * LANES)


def reduced(requests: list[Any]) -> Any:
    """What every lane gets from a block reduction."""
    kind, name = requests[0][:2]
    values = [value for _, _, value in requests]
    return oracle.wrap(name, sum(values)) if kind == "sum" else {"min": min, "max": max}[kind](values)


def run_group(lanes: list[Iterator[Any]], rng: random.Random) -> None:
    """Runs the lanes to their ends, all of them from one collective to the next."""
    answer, alive = None, True
    while alive:
        requests: list[Any] = [None] * len(lanes)
        ended = 0
        for k in rng.sample(range(len(lanes)), len(lanes)):
            try:
                lane = lanes[k]
                assert isinstance(lane, Generator)
                requests[k] = lane.send(answer)
            except StopIteration:
                ended += 1
        assert ended in (0, len(lanes)), "the generator let some lanes miss a collective"
        alive = not ended
        if alive:
            assert len({r[:2] for r in requests}) == 1
            answer = None if requests[0][0] == "barrier" else reduced(requests)


# --- programs -----------------------------------------------------------------------------------


@dataclass
class Scope:
    """What may be used at one point: variables by type, and shared arrays with their present use."""

    varying: dict[str, str] = field(default_factory=dict)
    uniform: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    owned: dict[str, str | None] = field(default_factory=dict)  # the slot of lane t, or None: read
    local: tuple[str, str] | None = None
    loops: int = 0  # around this point, with collectives


@dataclass
class Program:
    tack: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    functions: list[Lines] = field(default_factory=list)


class Drawer:
    """Draws one program."""

    def __init__(self, rng: random.Random, prefix: str) -> None:
        self.rng = rng
        self.prefix = prefix
        self.program = Program()
        self.functions: list[str] = []
        self.count = 0

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{self.prefix}{letter}{self.count}"

    # --- expressions of a given type

    def cast(self, text: Pair, name: str) -> Pair:
        return f"tack.{name}({text[0]})", f"wrap({name!r}, {text[1]})"

    def literal(self, name: str) -> Pair:
        number = self.rng.randrange(-3, 20)
        return self.cast((f"({number})", f"({number})"), name)

    def leaf(self, scope: Scope, name: str, uniform: bool) -> Pair:
        names = scope.uniform if uniform or self.chance(25) else scope.varying
        found = [v for v, t in names.items() if t == name]
        if found and self.chance(50):
            v = self.rng.choice(found)
            return v, v
        if names and self.chance(60):
            v = self.rng.choice(list(names))
            return self.cast((v, v), name)
        if uniform or self.chance(30):
            return self.literal(name)
        kind = self.rng.randrange(5)
        if kind < 2 and scope.shared:
            return self.cast(self.shared_element(scope), name)
        if kind == 2 and scope.local:
            index = self.index(scope, LOCAL)
            return self.cast((f"{scope.local[0]}[{index[0]}]", f"{scope.local[0]}[{index[1]}]"), name)
        if kind == 3:
            index = self.index(scope, LANES)
            return self.cast((f"x[{index[0]}]", f"x[{index[1]}]"), name)
        return self.cast(("t", "t"), name)

    def shared_element(self, scope: Scope) -> Pair:
        array = self.rng.choice(list(scope.shared))
        slot = scope.owned[array]
        index = (slot, slot) if slot is not None else self.index(scope, LANES)
        return f"{array}[{index[0]}]", f"{array}[{index[1]}]"

    def index(self, scope: Scope, size: int) -> Pair:
        """Within an array whose size is a power of two."""
        kind = self.rng.randrange(4)
        if kind == 0:
            number = str(self.rng.randrange(size))
            return number, number
        if kind == 1:
            text = f"(t + {self.rng.randrange(size)}) % {size}"
            return text, text
        a, b = self.leaf(replace(scope, shared={}, local=None), "i32", False)
        return f"({a}) & {size - 1}", f"({b}) & {size - 1}"

    def expression(self, scope: Scope, name: str, depth: int, uniform: bool = False) -> Pair:
        if depth <= 0 or self.chance(15):
            return self.leaf(scope, name, uniform)
        kind = self.rng.randrange(10)
        if kind < 7:
            op = self.rng.choice(tuple(OPERATIONS))
            a, b = (self.expression(scope, name, depth - 1, uniform) for _ in "ab")
            text = f"{op}({a[0]}, {b[0]})" if op.isalpha() else f"({a[0]} {op} {b[0]})"
            return text, f"binary({op!r}, {name!r}, {a[1]}, {b[1]})"
        if kind < 8:
            return self.cast(self.expression(scope, self.rng.choice(TYPES), depth - 1, uniform), name)
        if kind < 9:
            c = self.condition(scope, depth - 1, uniform)
            return self.cast((c[0], f"int({c[1]})"), name)
        a, b = (self.expression(scope, name, depth - 1, uniform) for _ in "ab")
        c = self.condition(scope, depth - 1, uniform)
        return f"({a[0]} if {c[0]} else {b[0]})", f"({a[1]} if {c[1]} else {b[1]})"

    def condition(self, scope: Scope, depth: int, uniform: bool) -> Pair:
        name = self.rng.choice(TYPES)
        a, b = (self.expression(scope, name, depth, uniform) for _ in "ab")
        op = self.rng.choice(oracle.COMPARISONS)
        return f"({a[0]} {op} {b[0]})", f"({a[1]} {op} {b[1]})"

    # --- statements without collectives

    def permutation(self) -> str:
        k = self.rng.randrange(LANES)
        return self.rng.choice(
            ("t", "t", f"{LANES - 1} - t", f"t ^ {k}", f"(t + {k}) % {LANES}", f"(t * {2 * k + 1}) % {LANES}")
        )

    def alone(self, scope: Scope, depth: int, indent: str) -> Lines:
        """What a lane does by itself."""
        kind = self.rng.randrange(10)
        if depth > 0 and kind == 0:
            c = self.condition(scope, 1, False)
            t, p = self.alone(scope, depth - 1, indent + "    ")
            u, q = self.alone(scope, depth - 1, indent + "    ")
            return (
                [f"{indent}if {c[0]}:", *t, f"{indent}else:", *u],
                [f"{indent}if {c[1]}:", *p, f"{indent}else:", *q],
            )
        if depth > 0 and kind == 1:
            q = self.fresh("q")
            head = f"{indent}for {q} in range(t % {self.rng.randrange(2, 5)}):"
            inner = replace(scope, varying={**scope.varying, q: "i64"})
            t, p = self.alone(inner, depth - 1, indent + "    ")
            t, p = ([line for line in x if not line.strip().startswith(f"{q} ")] for x in (t, p))
            return [head, *(t or [f"{indent}    pass"])], [head, *(p or [f"{indent}    pass"])]
        owned = [a for a, slot in scope.owned.items() if slot is not None]
        if owned and kind < 5:
            array = self.rng.choice(owned)
            target, name = f"{array}[{scope.owned[array]}]", scope.shared[array]
            value = self.expression(scope, name, 2)
            return [f"{indent}{target} = {value[0]}"], [f"{indent}{target} = {value[1]}"]
        if scope.local and kind == 5:
            array, name = scope.local
            index, value = self.index(scope, LOCAL), self.expression(scope, name, 2)
            return [f"{indent}{array}[{index[0]}] = {value[0]}"], [
                f"{indent}{array}[{index[1]}] = {value[1]}"
            ]
        v = self.rng.choice([v for v in scope.varying if "v" in v[len(self.prefix) :]])
        name = scope.varying[v]
        value = self.expression(scope, name, 2)
        if self.chance(30):
            op = self.rng.choice(("+", "-", "*", "^"))
            return [f"{indent}{v} {op}= {value[0]}"], [
                f"{indent}{v} = binary({op!r}, {name!r}, {v}, {value[1]})"
            ]
        return [f"{indent}{v} = {value[0]}"], [f"{indent}{v} = {value[1]}"]

    # --- statements of the group

    def barrier(self, scope: Scope, indent: str) -> Lines:
        """After it, each array gets another use."""
        for array in scope.shared:
            scope.owned[array] = self.permutation() if self.chance(50) else None
        return [f"{indent}tack.barrier()"], [f"{indent}yield ('barrier', '', 0)"]

    def together(self, scope: Scope, depth: int, indent: str) -> Lines:
        """What all lanes of a group do."""
        kind = self.rng.randrange(16)
        if kind < 4:
            return self.barrier(scope, indent)
        if kind < 6:
            return self.reduction(scope, indent)
        if kind == 6 and self.functions:
            return self.call(scope, indent)
        if depth > 0 and kind < 9:
            return self.compound(scope, depth, indent)
        if kind == 9:
            u = self.rng.choice([u for u in scope.uniform if "u" in u[len(self.prefix) :]])
            value = self.expression(scope, scope.uniform[u], 2, uniform=True)
            return [f"{indent}{u} = {value[0]}"], [f"{indent}{u} = {value[1]}"]
        return self.alone(scope, 2, indent)

    def reduction(self, scope: Scope, indent: str) -> Lines:
        kind = self.rng.choice(("sum", "min", "max"))
        if self.chance(25):
            name, made = on_device(self.rng.choice(("f32", "f64"))), "i64"
            value = self.expression(scope, "i32", 2)
            text = f"tack.i64(tack.block_{kind}(tack.{name}({value[0]} & 63)))"
            python = f"(yield ({kind!r}, 'i64', {value[1]} & 63))"
        else:
            name = made = self.rng.choice(REDUCED)
            value = self.expression(scope, name, 2)
            text, python = f"tack.block_{kind}({value[0]})", f"(yield ({kind!r}, {name!r}, {value[1]}))"
        targets = {u: t for u, t in scope.uniform.items() if "u" in u[len(self.prefix) :]}
        if self.chance(30):
            targets = {v: t for v, t in scope.varying.items() if "v" in v[len(self.prefix) :]}
        target = self.rng.choice(list(targets))
        if made != targets[target]:
            text, python = self.cast((text, python), targets[target])
        return [f"{indent}{target} = {text}"], [f"{indent}{target} = {python}"]

    def call(self, scope: Scope, indent: str) -> Lines:
        name = self.rng.choice(self.functions)
        v = self.rng.choice([v for v in scope.varying if "v" in v[len(self.prefix) :]])
        value = self.expression(scope, "i32", 2)
        site = self.fresh("site")
        call = f"tack.{scope.varying[v]}({name}({value[0]}, x))"
        python = f"wrap({scope.varying[v]!r}, (yield from {name}(group, {site!r}, t, {value[1]}, x)))"
        # The function's own array is written after its first barrier.
        t, p = self.barrier(scope, indent)
        return [*t, f"{indent}{v} = {call}"], [*p, f"{indent}{v} = {python}"]

    def compound(self, scope: Scope, depth: int, indent: str) -> Lines:
        """A conditional or loop around collectives, with a barrier before and after it."""
        tack, python = self.barrier(scope, indent)
        inner = replace(scope, owned=dict(scope.owned), uniform=dict(scope.uniform))
        deeper = indent + "    "
        kind = self.rng.randrange(3)
        if kind == 0:
            c = self.condition(scope, 1, True)
            tack.append(f"{indent}if {c[0]}:")
            python.append(f"{indent}if {c[1]}:")
            t, p = self.group(inner, self.rng.randrange(1, 4), depth - 1, deeper)
            if self.chance(50):
                other = replace(scope, owned=dict(scope.owned), uniform=dict(scope.uniform))
                u, q = self.group(other, self.rng.randrange(1, 3), depth - 1, deeper)
                t, p = [*t, f"{indent}else:", *u], [*p, f"{indent}else:", *q]
        else:
            q = self.fresh("q")
            bound = self.expression(scope, "i32", 1, uniform=True)
            low = ("0, ", "1, ")[self.chance(30)]
            if kind == 1:
                tack.append(f"{indent}for {q} in range({low}{bound[0]} & 3):")
                python.append(f"{indent}for {q} in range({low}{bound[1]} & 3):")
                step: list[str] = []
            else:
                # The bound is evaluated each time, and may change.
                tack += [f"{indent}{q} = tack.i64(0)", f"{indent}while {q} < ({bound[0]} & 3):"]
                python += [f"{indent}{q} = 0", f"{indent}while {q} < ({bound[1]} & 3):"]
                step = [f"{deeper}{q} += 1"]
            inner.uniform[q] = "i64"
            inner.loops += 1
            t, p = self.barrier(inner, deeper)  # a further round meets the last one here
            t, p = t + step, p + step
            u, r = self.group(inner, self.rng.randrange(1, 4), depth - 1, deeper)
            t, p = t + u, p + r
            if self.chance(40):
                c = self.condition(inner, 1, True)
                word = self.rng.choice(("break", "continue"))
                t += [f"{deeper}if {c[0]}:", f"{deeper}    {word}"]
                p += [f"{deeper}if {c[1]}:", f"{deeper}    {word}"]
                u, r = self.group(inner, self.rng.randrange(1, 3), 0, deeper)
                t, p = t + u, p + r
        after = self.barrier(scope, indent)
        return [*tack, *t, *after[0]], [*python, *p, *after[1]]

    def group(self, scope: Scope, size: int, depth: int, indent: str) -> Lines:
        tack, python = [], []
        for _ in range(size):
            t, p = self.together(scope, depth, indent)
            tack += t
            python += p
        return tack, python

    # --- whole programs

    def declare(self, scope: Scope, indent: str) -> Lines:
        """Variables of each kind; a local array; shared arrays, every slot written by its owner."""
        tack, python = [], []

        def line(target: str, value: Pair) -> None:
            tack.append(f"{indent}{target} = {value[0]}")
            python.append(f"{indent}{target} = {value[1]}")

        for letter, names, count in (("u", scope.uniform, 2), ("v", scope.varying, 3)):
            for _ in range(count):
                name, made = self.fresh(letter), self.rng.choice(TYPES)
                line(name, self.expression(scope, made, 2, letter == "u"))
                names[name] = made
        if self.chance(50):
            array, made = self.fresh("l"), self.rng.choice(TYPES)
            line(array, (f"tack.local_array({LOCAL}, tack.{made})", f"[0] * {LOCAL}"))
            for k in range(LOCAL):
                line(f"{array}[{k}]", self.expression(scope, made, 1))
            scope.local = array, made
        for _ in range(self.rng.randrange(1, 4)):
            array, made = self.fresh("s"), self.rng.choice(TYPES)
            line(array, (f"tack.shared({LANES}, tack.{made})", f"shared(group, {array!r})"))
            slot = self.permutation()
            line(f"{array}[{slot}]", self.expression(scope, made, 2))
            scope.shared[array], scope.owned[array] = made, slot
        return tack, python

    def function(self) -> None:
        """A device function with a shared array of its own, and a return that only some lanes take."""
        name, array, made = self.fresh("f"), self.fresh("s"), self.rng.choice(TYPES)
        indent, v = " " * 4, self.fresh("v")
        scope = Scope(varying={"a": "i32", v: made})
        first = self.expression(Scope(varying={"a": "i32"}), made, 2)
        tack = ["@tack.func", f"def {name}(a, x):", f"{indent}t = tack.thread_id()"]
        python = [f"def {name}(group, site, t, a, x):"]
        tack += [f"{indent}{array} = tack.shared({LANES}, tack.{made})", f"{indent}{v} = {first[0]}"]
        python += [f"{indent}{array} = shared(group, site)", f"{indent}{v} = {first[1]}"]
        scope.shared, scope.owned = {array: made}, {array: "t"}
        t, p = self.barrier(scope, indent)
        slot = self.permutation()
        scope.owned[array] = slot
        value = self.expression(Scope(varying=scope.varying), made, 2)
        tack += [*t, f"{indent}{array}[{slot}] = {value[0]}"]
        python += [*p, f"{indent}{array}[{slot}] = {value[1]}"]
        t, p = self.barrier(scope, indent)
        tack, python = tack + t, python + p
        for _ in range(self.rng.randrange(1, 4)):
            t, p = self.alone(scope, 2, indent)
            tack, python = tack + t, python + p
        if self.chance(60):
            c, early = self.condition(scope, 1, False), self.expression(scope, made, 1)
            tack += [f"{indent}if {c[0]}:", f"{indent}    return {early[0]}"]
            python += [f"{indent}if {c[1]}:", f"{indent}    return {early[1]}"]
            t, p = self.alone(scope, 1, indent)
            tack, python = tack + t, python + p
        last = self.expression(scope, made, 1)
        tack += [f"{indent}return {last[0]}"]
        python += [f"{indent}return {last[1]}"]
        self.program.functions.append((tack, python))
        self.functions.append(name)

    def generate(self, number: int, last: bool) -> Program:
        program, indent = self.program, " " * 8
        for _ in range(self.rng.randrange(3)):
            self.function()
        scope = Scope(varying={"i": "i64", "t": "i32"}, uniform={"p": "i32"})
        parts = [self.declare(scope, indent), self.group(scope, self.rng.randrange(5, 12), 2, indent)]
        for t, p in parts:
            program.tack += t
            program.python += p
        self.report(scope, number, last, indent)
        program.python = [line[4:] for line in program.python]
        return program

    def report(self, scope: Scope, number: int, last: bool, indent: str) -> None:
        t, p = self.barrier(scope, indent)
        self.program.tack += t
        self.program.python += p
        if last and self.chance(50):  # nothing that all lanes do follows
            c = self.condition(scope, 1, False)
            self.program.tack += [f"{indent}if {c[0]}:", f"{indent}    continue"]
            self.program.python += [f"{indent}if {c[1]}:", f"{indent}    return"]
        names = [v for v in (*scope.varying, *scope.uniform) if v not in ("i", "t", "p")]
        names += [f"{a}[t]" if scope.owned[a] is None else f"{a}[{scope.owned[a]}]" for a in scope.shared]
        for k, name in enumerate(names):
            target = f"out[i * {RESULTS * BATCH} + {number * RESULTS + k}]"
            self.program.tack.append(f"{indent}{target} = {name}")
            self.program.python.append(f"{indent}{target} = wrap('i64', {name})")
        assert len(names) <= RESULTS


# --- running ------------------------------------------------------------------------------------


def generate(rng: random.Random, count: int = BATCH) -> tuple[str, list[Program]]:
    form = rng.choice(tuple(FORMS))
    return form, [Drawer(rng, f"p{k}_").generate(k, k == count - 1) for k in range(count)]


def kernel_source(form: str, programs: list[Program]) -> str:
    functions = ["\n".join(t) + "\n\n" for p in programs for t, _ in p.functions]
    head = ["@tack.kernel", "def kernel(out, x, p, n):", *(f"    {line}" for line in FORMS[form])]
    lines = [*head, "        t = tack.thread_id()", *(line for p in programs for line in p.tack)]
    return "".join(functions) + "\n".join(lines) + "\n"


def python_source(programs: list[Program]) -> str:
    functions = ["\n".join(p) + "\n\n" for q in programs for _, p in q.functions]
    bodies = [
        f"def program{k}(group, i, t, p, x, out):\n" + "\n".join(q.python) + "\n\n"
        for k, q in enumerate(programs)
    ]
    return "".join(functions + bodies)


def difference(form: str, programs: list[Program], seed: int) -> str | None:
    """A description of the first difference from the model, or None."""
    rng = random.Random(seed)
    space: dict[str, Any] = {"wrap": oracle.wrap, "binary": binary, "shared": shared}
    exec(python_source(programs), space)
    x = np.random.default_rng(seed).integers(-(2**31), 2**31, LANES)
    x[::3] %= 50
    p, n = rng.choice((0, 1, 2, 3, 7, -5)), rng.choice((256, 512))
    want = np.zeros(n * RESULTS * BATCH, np.int64)
    values = x.tolist()
    for start in range(0, n, LANES):
        for k in range(len(programs)):
            group: dict[str, list[Any]] = {}
            lane = space[f"program{k}"]
            run_group([lane(group, start + t, t, p, values, want) for t in range(LANES)], rng)
    got = np.zeros_like(want)
    build(kernel_source(form, programs))(got, x, p, n)
    if np.array_equal(got, want):
        return None
    at = int(np.argmax(got != want))
    i, slot = divmod(at, RESULTS * BATCH)
    where = f"program {slot // RESULTS}, iteration {i} of {n}, result {slot % RESULTS}, p = {p}"
    return f"{where}: got {got[at]}, Python gives {want[at]}"


def report(form: str, programs: list[Program], seed: int, problem: str) -> str:
    return f"{problem}\n{kernel_source(form, programs)}\n--- Python\n{python_source(programs)}"


def trial(seed: int) -> str | None:
    form, programs = generate(random.Random(seed))
    try:
        problem = difference(form, programs, seed)
    except Exception as error:  # a valid program that is refused is a finding too
        problem = f"{type(error).__name__}: {error}"
    return None if problem is None else report(form, programs, seed, problem)


def draw(seed: int) -> Trial:
    return functools.partial(trial, seed)


if __name__ == "__main__":
    sys.exit(sweep("differential.lanes", BATCH, 1000, draw))
