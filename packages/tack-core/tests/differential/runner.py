"""Runs generated programs compiled, compiled in threads, and in Python, and compares every result."""

from __future__ import annotations

import functools
import itertools
import linecache
import random
from typing import Any

import numpy as np
from conformance import oracle

import tack

from .generator import ARRAYS, INPUTS, SCRATCH, Generator, Program, kernel_source, namespace, python_source

MANY = 16 * 1024  # iterations: enough for every worker to take part
BLOCKS = 35 * INPUTS  # iterations: enough for blocks of up to 1024, of which the last is not full
_numbers = itertools.count()


def generate(rng: random.Random, count: int) -> list[Program]:
    """``count`` programs for one kernel; the last may end an iteration with `continue`."""
    return [Generator(rng, f"p{k}_").generate(k == count - 1) for k in range(count)]


def inputs() -> dict[str, np.ndarray]:
    """One array of each type: its boundary values, then random ones."""
    found = {}
    for name in oracle.INTEGERS:
        rng = np.random.default_rng(oracle.bits(name))
        dtype = oracle.numpy_dtype(name)
        array = rng.integers(0, 256, INPUTS * dtype.itemsize, np.uint8).view(dtype)
        edges = oracle.interesting_integers(name)
        array[: len(edges)] = edges
        array[len(edges) : len(edges) + 4] = rng.integers(0, 9, 4)
        found[f"in_{name}"] = rng.permutation(array)
    return found


INPUT_ARRAYS = inputs()


def on_device(name: str) -> str:
    """A type that was drawn, as it is on the default device: f32 for an f64 where there is none."""
    return "f32" if name == "f64" and not tack.default_device().supports_f64 else name


def lengths(few: int, many: int) -> list[tuple[str, int]]:
    """The numbers of iterations that a kernel is run for on the default device."""
    if tack.default_device().name == "cpu":
        return [("serial", few), ("threaded", many)]
    return [("launched", BLOCKS)]


def run_python(programs: list[Program]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The results of the Python texts for one period of inputs, and the scratch arrays after it."""
    space = namespace()
    exec(python_source(programs), space)
    arrays: dict[str, list[int]] = {k: v.tolist() for k, v in INPUT_ARRAYS.items()}
    arrays |= {f"s_{t}": [0] * (INPUTS * SCRATCH) for t in oracle.INTEGERS}
    out = np.zeros((len(programs), INPUTS), np.int64)
    for i in range(INPUTS):
        for number in range(len(programs)):
            result = space[f"program{number}"](i, i, *(arrays[name] for name in ARRAYS))
            out[number, i] = oracle.wrap("i64", result)
    scratch = {f"s_{t}": np.array(arrays[f"s_{t}"], oracle.numpy_dtype(t)) for t in oracle.INTEGERS}
    return out, scratch


def run_tack(kernel: Any, programs: int, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The results on the default device for ``n`` iterations, and the scratch arrays after it."""
    out = tack.asarray(np.zeros(programs * n, np.int64))
    scratch = {f"s_{t}": tack.asarray(np.zeros(n * SCRATCH, oracle.numpy_dtype(t))) for t in oracle.INTEGERS}
    arrays = inputs_on(tack.default_device()) | scratch
    kernel(out, n, *(arrays[name] for name in ARRAYS))
    return out.numpy().reshape(programs, n), {name: array.numpy() for name, array in scratch.items()}


@functools.cache
def inputs_on(device: tack.Device) -> dict[str, tack.Array]:
    return {name: tack.asarray(array, device=device) for name, array in INPUT_ARRAYS.items()}


def build(source: str) -> Any:
    """The kernel of a text, in which it is called ``kernel``, with a name of its own: what is compiled may
    be in one library with others."""
    number = next(_numbers)
    filename, name = f"<differential-{number}>", f"kernel_{number}"
    source = source.replace("def kernel(", f"def {name}(")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tack": tack}
    exec(compile(source, filename, "exec"), space)
    del linecache.cache[filename]  # decoration has taken the text
    return space[name]


class Case:
    """Programs in one kernel, and what Python says that they do. They can be run on several devices."""

    def __init__(self, programs: list[Program]) -> None:
        self.programs = programs
        self.expected, self.scratch = run_python(programs)
        self.kernel = build(kernel_source(programs))

    def difference(self) -> str | None:
        """A description of the first difference between Python and a run on the default device, or None."""
        for label, n in lengths(INPUTS, MANY):
            problem = self._difference(label, n)
            if problem is not None:
                return problem
        return None

    def _difference(self, label: str, n: int) -> str | None:
        got, stored = run_tack(self.kernel, len(self.programs), n)
        every = np.tile(self.expected, n // INPUTS)
        if not np.array_equal(got, every):
            number, i = (int(k) for k in np.argwhere(got != every)[0])
            both = f"got {got[number, i]}, Python gives {every[number, i]}"
            return f"{label}: program {number}, iteration {i}: {both}"
        for name, array in stored.items():
            wanted = np.tile(self.scratch[name], n // INPUTS)
            if not np.array_equal(array, wanted):
                i = int(np.argmax(array != wanted))
                return f"{label}: {name}[{i}] is {array[i]}, in Python {wanted[i]}"
        return None


def difference(programs: list[Program]) -> str | None:
    """A description of the first difference between the runs, or None."""
    return Case(programs).difference()


def report(programs: list[Program], problem: str) -> str:
    """The difference with the smallest set of programs that still shows it, and both texts."""
    for program in programs:
        single = difference_of_one(program)
        if single is not None:
            programs, problem = [program], single
            break
    return f"{problem}\n\n{kernel_source(programs)}\n--- Python\n{python_source(programs)}"


def difference_of_one(program: Program) -> str | None:
    try:
        return difference([program])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
