"""Runs generated programs compiled, compiled in threads, and in Python, and compares every result."""

from __future__ import annotations

import itertools
import linecache
import random
from typing import Any

import numpy as np
from conformance import oracle

import tack

from .generator import ARRAYS, INPUTS, SCRATCH, Generator, Program, kernel_source, namespace, python_source

MANY = 16 * 1024  # iterations: enough for every worker to take part
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
    out = np.zeros((programs, n), np.int64)
    scratch = {f"s_{t}": np.zeros(n * SCRATCH, oracle.numpy_dtype(t)) for t in oracle.INTEGERS}
    kernel(out.ravel(), n, *(INPUT_ARRAYS.get(name, scratch.get(name)) for name in ARRAYS))
    return out, scratch


def build(source: str) -> Any:
    filename = f"<differential-{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tack": tack}
    exec(compile(source, filename, "exec"), space)
    del linecache.cache[filename]  # decoration has taken the text
    return space["kernel"]


def difference(programs: list[Program]) -> str | None:
    """A description of the first difference between the three runs, or None."""
    expected, scratch = run_python(programs)
    source = kernel_source(programs)
    kernel = build(source)
    for label, n in (("serial", INPUTS), ("threaded", MANY)):
        got, stored = run_tack(kernel, len(programs), n)
        periods = n // INPUTS
        for number in range(len(programs)):
            wanted = np.tile(expected[number], periods)
            if not np.array_equal(got[number], wanted):
                i = int(np.argmax(got[number] != wanted))
                both = f"got {got[number, i]}, Python gives {wanted[i]}"
                return f"{label}: program {number}, iteration {i}: {both}"
        for name, array in stored.items():
            if not np.array_equal(array, np.tile(scratch[name], periods)):
                i = int(np.argmax(array != np.tile(scratch[name], periods)))
                return f"{label}: {name}[{i}] is {array[i]}, in Python {np.tile(scratch[name], periods)[i]}"
    return None


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
