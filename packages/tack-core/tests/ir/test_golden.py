"""The golden-test harness itself, with a pass that replaces a constant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tack.ir import nodes as ir
from tack.ir.traversal import Rewriter, replace
from tack.ir.verify import VerificationError

from .golden import check_pass, pass_name

GIVEN = """\
// pass: double
// Constants of the loop's body only.
template k(x) {
  parallel i in (0, 8, 1) {
    x[%i] = 2
  }
}
"""
EXPECTED = "template k(x) {\n  parallel i in (0, 8, 1) {\n    x[%i] = 4\n  }\n}\n"


class _Double(Rewriter):
    def visit_Const(self, node: ir.Const) -> ir.Const:
        return replace(node, value=node.value * 2)


def double(kernel: ir.Kernel) -> ir.Kernel:
    return replace(kernel, loop=replace(kernel.loop, body=_Double().body(kernel.loop.body)))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TACK_UPDATE_GOLDEN", raising=False)
    path = tmp_path / "double.ir"
    path.write_text(GIVEN + "// ---\n" + EXPECTED)
    return path


def test_the_right_text_passes(case: Path) -> None:
    assert pass_name(case) == "double"
    check_pass("double", double, case)


def test_another_text_fails(case: Path) -> None:
    case.write_text(case.read_text().replace("= 4", "= 5"))
    with pytest.raises(AssertionError, match="x\\[%i\\] = 4"):
        check_pass("double", double, case)
    case.write_text(GIVEN)
    with pytest.raises(AssertionError, match="has no line '// ---'"):
        check_pass("double", double, case)


def test_a_case_of_another_pass_fails(case: Path) -> None:
    with pytest.raises(AssertionError, match="a case of another pass than 'triple'"):
        check_pass("triple", double, case)
    case.write_text(EXPECTED)
    with pytest.raises(AssertionError, match="the first line is not '// pass: NAME'"):
        check_pass("double", double, case)


@pytest.mark.parametrize("start", [GIVEN, GIVEN + "// ---\n", GIVEN + "// ---\nold\n"])
def test_updating_writes_the_result_and_keeps_the_rest(
    case: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    case.write_text(start)
    monkeypatch.setenv("TACK_UPDATE_GOLDEN", "1")
    check_pass("double", double, case)
    assert case.read_text() == GIVEN + "// ---\n" + EXPECTED


def test_a_pass_that_breaks_the_kernel_or_its_input_fails(case: Path) -> None:
    def breaking(kernel: ir.Kernel) -> ir.Kernel:
        return replace(kernel, after=(ir.Break(),))

    def modifying(kernel: ir.Kernel) -> ir.Kernel:
        result = double(kernel)
        kernel.loop = result.loop
        return result

    with pytest.raises(VerificationError, match="a break outside"):
        check_pass("double", breaking, case)
    with pytest.raises(AssertionError, match="pass 'double' changed its input"):
        check_pass("double", modifying, case)
