"""What lowering makes of source: the order of evaluation, inlining, and the loop's structure."""

import textwrap

import pytest

import tack
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import verify

LIMIT = tack.constant(3)
GAIN = tack.constant(0.5)
TABLE = tack.constant(((1, 2), (3, 4)))


def body(kernel: tack.Kernel) -> str:
    """The text between the braces of the parallel loop of a kernel's template."""
    template = kernel.template()
    verify(template)
    text = to_text(template)
    assert to_text(parse(text)) == text
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("  parallel"))
    end = next(k for k in range(start, len(lines)) if lines[k] == "  }")
    return textwrap.dedent("\n".join(lines[start + 1 : end]))


def expect(kernel: tack.Kernel, text: str) -> None:
    assert body(kernel) == textwrap.dedent(text).strip()


@tack.func
def bump(x, i):
    x[i] = x[i] + 1
    return x[i]


@tack.func
def clip(v, low, high):
    if v < low:
        return low
    return min(v, high)


def test_an_operand_is_saved_before_a_later_effect():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = x[0] + bump(x, 0)

    expect(
        k,
        """
        %tmp = x[0]
        x[0] = add(x[0], 1)
        x[%i] = add(%tmp, x[0])
        """,
    )


def test_an_operand_without_loads_stays_in_place():
    @tack.kernel
    def k(x, n):
        for i in range(3):
            x[i] = n * i + bump(x, 0)

    expect(
        k,
        """
        x[0] = add(x[0], 1)
        x[%i] = add(mul($n, %i), x[0])
        """,
    )


def test_a_guarded_call_runs_only_if_it_decides():
    @tack.kernel
    def k(x):
        for i in range(3):
            if i < 2 and bump(x, i) > 0:
                x[i] = 0

    expect(
        k,
        """
        %and = lt(%i, 2)
        if %and {
          %bump.i = %i
          x[%bump.i] = add(x[%bump.i], 1)
          %and = gt(x[%bump.i], 0)
        }
        if %and {
          x[%i] = 0
        }
        """,
    )


def test_a_chain_evaluates_its_middle_once():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = 0 < x[i] < 5

    expect(
        k,
        """
        %tmp = x[%i]
        x[%i] = and(lt(0, %tmp), lt(%tmp, 5))
        """,
    )


def test_augmented_assignment_evaluates_its_index_once():
    @tack.kernel
    def k(x, at):
        for i in range(3):
            x[at[i]] += i

    expect(
        k,
        """
        %tmp = at[%i]
        x[%tmp] = add(x[%tmp], %i)
        """,
    )


def test_a_store_computes_its_value_before_its_index():
    @tack.kernel
    def k(x):
        for _ in range(3):
            x[bump(x, 0)] = x[0]

    expect(
        k,
        """
        %tmp = x[0]
        x[0] = add(x[0], 1)
        x[x[0]] = %tmp
        """,
    )


def test_a_swap_reads_before_it_assigns():
    @tack.kernel
    def k(x):
        for i in range(3):
            a = i
            b = 1
            a, b = b, a
            x[a] = b

    expect(
        k,
        """
        %a = %i
        %b = 1
        %tmp = %b
        %tmp.1 = %a
        %a = %tmp
        %b = %tmp.1
        x[%a] = %b
        """,
    )


def test_return_inside_a_branch_leaves_the_inlined_body():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = clip(x[i], 0, LIMIT)

    expect(
        k,
        """
        %clip.v = x[%i]
        block clip.body {
          if lt(%clip.v, 0) {
            %clip.result = 0
            leave clip.body
          }
          %clip.result = call.min(%clip.v, 3)
          leave clip.body
        }
        x[%i] = %clip.result
        """,
    )


def test_the_same_function_inlined_twice_shares_no_locals():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = clip(i, 0, 1) + clip(i, 2, 3)

    text = body(k)
    assert "%clip.v = %i" in text
    assert "%clip.v.1 = %i" in text
    assert "x[%i] = add(%clip.result, %clip.result.1)" in text


def test_break_out_of_ndindex_leaves_all_its_loops():
    @tack.kernel
    def k(x):
        for i in range(3):
            for a, b in tack.ndindex(2, (1, 4)):
                if a == b:
                    break
                x[i] = a

    expect(
        k,
        """
        block loop {
          for %a in (0, 2, 1) {
            for %b in (1, 4, 1) {
              if eq(%a, %b) {
                leave loop
              }
              x[%i] = %a
            }
          }
        }
        """,
    )


def test_constants_are_literals_and_tables_are_looked_up():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = GAIN * TABLE[1][0] + TABLE[i, 1]

    expect(
        k,
        """
        x[%i] = add(mul(0.5, 3), lookup(TABLE, add(mul(call.min(call.max(%i, 0:i64), 1:i64), 2:i64), \
call.min(call.max(1, 0:i64), 1:i64))))
        """,
    )


def test_an_assigned_parameter_becomes_a_local():
    @tack.kernel
    def k(x, a):
        for i in range(3):
            a += 1
            x[i] = a

    template = k.template()
    assert to_text(template).splitlines()[1] == "  %a.1 = $a"
    expect(k, "%a.1 = add(%a.1, 1)\nx[%i] = %a.1")


def test_a_while_condition_with_effects_runs_each_round():
    @tack.kernel
    def k(x):
        for i in range(3):
            while bump(x, i) < 5:
                pass

    expect(
        k,
        """
        while 1 {
          %bump.i = %i
          x[%bump.i] = add(x[%bump.i], 1)
          if not(lt(x[%bump.i], 5)) {
            break
          }
        }
        """,
    )


def test_a_template_is_made_once():
    @tack.kernel
    def k(x):
        for i in range(3):
            x[i] = i

    assert k.template() is k.template()


def test_compiling_leaves_the_template_as_it_was():
    @tack.kernel
    def k(x, n):
        m = n
        for i in range(m):
            m += 1
            x[i] = m + x.shape[0]

    text = to_text(k.template())
    k(tack.zeros(4), 3)
    k(tack.zeros(4, tack.i64), 3)
    assert to_text(k.template()) == text


def test_a_parallel_loop_behind_an_endless_one_is_rejected():
    @tack.kernel
    def k(x):
        while True:
            pass
        for i in range(3):
            x[i] = i

    with pytest.raises(tack.UnsupportedSyntaxError, match="the parallel loop is never reached"):
        k.template()
