"""Each pass on the cases in passes/: kernel text in, kernel text out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tack.ir.nodes import Kernel
from tack.ir.passes.infer_types import infer_types
from tack.ir.passes.localize import localize
from tack.ir.passes.resolve_dims import resolve_dims
from tack.ir.passes.sampling import choose_sampling

from .golden import check_pass, pass_name

# The extents of the arrays that the cases use, by name.
SHAPES = {"a": (4, 8), "c": ()}


PASSES: dict[str, Callable[[Kernel], Kernel]] = {
    "resolve_dims": lambda kernel: resolve_dims(kernel, SHAPES),
    "infer_types": lambda kernel: infer_types(
        kernel, {p.name: SHAPES.get(p.name, (8,)) for p in kernel.params}
    ),
    "localize": localize,
    "choose_sampling": lambda kernel: choose_sampling(kernel, {"fast"}),
}
CASES = sorted(Path(__file__).with_name("passes").glob("*.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    name = pass_name(path)
    check_pass(name, PASSES[name], path)


def test_every_pass_has_cases() -> None:
    assert {pass_name(path) for path in CASES} == set(PASSES)
