"""The pass pipeline: order, hooks and checks."""

from __future__ import annotations

import pytest

from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.pipeline import Pass, run_pipeline
from tack.ir.printer import to_text
from tack.ir.traversal import map_bodies, replace
from tack.ir.verify import VerificationError

KERNEL = parse("template k() {\nparallel i in (0, 1, 1) {\n}\n}")


def appending(name: str) -> Pass:
    """A pass that assigns to the local ``name`` at the end of each statement list."""
    statement = ir.Assign(name, ir.Const(1))
    return Pass(f"append {name}", lambda kernel: map_bodies(kernel, lambda body: (*body, statement)))


def breaking(kernel: ir.Kernel) -> ir.Kernel:
    return replace(kernel, before=(ir.Break(),))


def test_passes_run_in_order() -> None:
    result = run_pipeline(KERNEL, [appending("a"), appending("b")])
    assert "%a = 1\n    %b = 1" in to_text(result)
    assert to_text(KERNEL).count("\n") == 3  # is left as it was
    assert run_pipeline(KERNEL, []) is KERNEL


def test_the_hook_sees_each_pass() -> None:
    seen: list[tuple[str, ir.Kernel, ir.Kernel, float]] = []
    result = run_pipeline(KERNEL, [appending("a"), appending("b")], hook=lambda *event: seen.append(event))
    (first, before, between, seconds), (second, between_too, after, _) = seen
    assert (first, second) == ("append a", "append b")
    assert before is KERNEL
    assert between is between_too
    assert after is result
    assert 0 <= seconds < 60


def test_verification_names_the_pass() -> None:
    passes = [appending("a"), Pass("breaking", breaking)]
    with pytest.raises(VerificationError, match=r"^after pass 'breaking': kernel 'k': a break outside"):
        run_pipeline(KERNEL, passes, verify=True)
    with pytest.raises(VerificationError, match=r"^before the first pass: kernel 'k': a break outside"):
        run_pipeline(breaking(KERNEL), [], verify=True)
    assert to_text(run_pipeline(KERNEL, passes)).count("break") == 1  # unless asked, nothing is checked


def test_an_exception_of_a_pass_goes_through() -> None:
    def failing(kernel: ir.Kernel) -> ir.Kernel:
        raise TypeError("no")

    with pytest.raises(TypeError, match=r"^no$"):
        run_pipeline(KERNEL, [Pass("failing", failing)], verify=True)
