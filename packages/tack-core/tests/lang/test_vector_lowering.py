"""What vectors, matrices and objects become in the IR: scalars, in the order of evaluation."""

import textwrap

import numpy as np

import tack
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import verify

PAIRS = (("a", (2,)),)


def expect(kernel: tack.Kernel, text: str, elements: object = PAIRS) -> None:
    """The template's parallel loop is ``text``, and survives the text form."""
    template = kernel.template(elements)
    verify(template)
    shown = to_text(template)
    assert to_text(parse(shown)) == shown
    lines = shown.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("  parallel"))
    end = next(k for k in range(start, len(lines)) if lines[k] == "  }")
    assert textwrap.dedent("\n".join(lines[start + 1 : end])) == textwrap.dedent(text).strip()


@tack.func
def bump(x, i):
    x[i] = x[i] + 1
    return x[i]


@tack.func
def mirrored(v):
    return v.yx


def test_an_element_is_read_before_any_component_is_stored():
    @tack.kernel
    def k(a):
        for i in range(3):
            a[i] = a[i].yx

    expect(
        k,
        """
        %tmp = a[%i; 0:i64]
        %tmp.1 = a[%i; 1:i64]
        a[%i; 0:i64] = %tmp.1
        a[%i; 1:i64] = %tmp
        """,
    )


def test_components_meet_and_a_variable_is_read_before_it_is_assigned():
    @tack.kernel
    def k(a):
        for i in range(3):
            v = [i, 1]
            v = [v.y, v.x]
            a[i] = v

    expect(
        k,
        """
        %v.0 = meet(%i, 1)
        %v.1 = meet(1, %i)
        %tmp = meet(%v.1, %v.0)
        %tmp.1 = meet(%v.0, %v.1)
        %v.0 = %tmp
        %v.1 = %tmp.1
        a[%i; 0:i64] = %v.0
        a[%i; 1:i64] = %v.1
        """,
    )


def test_a_component_chosen_at_run_time_is_saved_and_compared():
    @tack.kernel
    def k(a, n):
        for i in range(3):
            v = a[i]
            v[n] = 5
            a[i] = v[n]

    expect(
        k,
        """
        %tmp = a[%i; 0:i64]
        %tmp.1 = a[%i; 1:i64]
        %v.0 = %tmp
        %v.1 = %tmp.1
        %tmp.2 = $n
        if eq(%tmp.2, 0:i64) {
          %v.0 = 5
        }
        if eq(%tmp.2, 1:i64) {
          %v.1 = 5
        }
        %tmp.3 = select(le($n, 0:i64), %v.0, %v.1)
        a[%i; 0:i64] = %tmp.3
        a[%i; 1:i64] = %tmp.3
        """,
    )


def test_augmented_components_evaluate_their_index_once_and_keep_the_variable_of_one_type():
    @tack.kernel
    def k(a, x):
        for i in range(3):
            v = a[i]
            v.x += x[i]
            a[x[i]].y *= v.y

    expect(
        k,
        """
        %tmp = a[%i; 0:i64]
        %tmp.1 = a[%i; 1:i64]
        %v.0 = %tmp
        %v.1 = %tmp.1
        %v.0 = add(%v.0, x[%i])
        %v.1 = meet(%v.1, %v.0)
        %tmp.2 = x[%i]
        a[%tmp.2; 1:i64] = mul(a[%tmp.2; 1:i64], %v.1)
        """,
    )


def test_components_are_evaluated_left_to_right():
    @tack.kernel
    def k(a, x):
        for i in range(3):
            a[i] = [x[0], bump(x, 0)]

    expect(
        k,
        """
        %tmp = x[0]
        x[0] = add(x[0], 1)
        %tmp.1 = x[0]
        a[%i; 0:i64] = meet(%tmp, %tmp.1)
        a[%i; 1:i64] = meet(%tmp.1, %tmp)
        """,
    )


def test_an_arm_of_a_conditional_loads_only_if_it_is_chosen():
    @tack.kernel
    def k(a, n):
        for i in range(3):
            a[0] = a[i] if n > 0 else 0.0

    expect(
        k,
        """
        if gt($n, 0) {
          %tmp = a[%i; 0:i64]
          %tmp.1 = a[%i; 1:i64]
          %if = %tmp
          %if.1 = %tmp.1
        } else {
          %if = 0.0
          %if.1 = 0.0
        }
        a[0; 0:i64] = %if
        a[0; 1:i64] = %if.1
        """,
    )


def test_a_vector_argument_is_a_parameter_for_each_component():
    @tack.kernel
    def k(a, m: tack.mat2):
        for i in range(3):
            a[i] = m @ a[i]

    assert [p.name for p in k.template(PAIRS).params] == ["a", "m.0", "m.1", "m.2", "m.3"]
    expect(
        k,
        """
        %tmp = a[%i; 0:i64]
        %tmp.1 = a[%i; 1:i64]
        a[%i; 0:i64] = add(mul($m.0, %tmp), mul($m.1, %tmp.1))
        a[%i; 1:i64] = add(mul($m.2, %tmp), mul($m.3, %tmp.1))
        """,
    )


def test_a_vector_goes_through_a_function_by_value():
    @tack.kernel
    def k(a):
        for i in range(3):
            v = [1, 2]
            a[i] = mirrored(v)

    expect(
        k,
        """
        %v.0 = meet(1, 2)
        %v.1 = meet(2, 1)
        %mirrored.v.0 = %v.0
        %mirrored.v.1 = %v.1
        a[%i; 0:i64] = %mirrored.v.1
        a[%i; 1:i64] = %mirrored.v.0
        """,
    )


def test_an_assigned_index_of_an_inner_ndindex_is_a_copy():
    @tack.kernel
    def k(x):
        for _i in range(3):
            for c in tack.ndindex(2, 3):
                c.x = x[c]

    expect(
        k,
        """
        block loop {
          for %c.0.1 in (0, 2, 1) {
            for %c.1.1 in (0, 3, 1) {
              %c.0 = %c.0.1
              %c.1 = %c.1.1
              %c.0 = x[%c.0, %c.1]
              %c.1 = meet(%c.1, %c.0)
            }
          }
        }
        """,
        (),
    )


def test_an_object_is_its_attributes_by_path():
    @tack.device_class
    class Inner:
        def __init__(self):
            self.gain = 2

    @tack.device_class
    class Outer:
        order = 3

        def __init__(self):
            self.data = tack.zeros(4)
            self.inner = Inner()

        @tack.func
        def value(self, i):
            return self.data[i] * self.inner.gain + self.order

    @tack.kernel
    def k(o, x):
        for i in range(3):
            x[i] = o.value(i)

    k(Outer(), np.zeros(3))
    (template,) = k.templates()
    verify(template)
    assert [p.name for p in template.params] == ["o.data", "o.inner.gain", "x"]
    assert "x[%i] = add(mul(o.data[%value.i], $o.inner.gain), 3)" in to_text(template)
