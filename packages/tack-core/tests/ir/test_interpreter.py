"""The reference interpreter, on kernels given as text, against NumPy and Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack.ir import nodes as ir
from tack.ir.interpreter import run
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import verify

from .strategies import arguments, generated_kernels, kernels, launches

LOCALS = {"a": "i64", "b": "i64", "f": "f32", "i": "i64", "j": "i64", "k": "i64", "t": "i32"}


def kernel(
    body: str, *, params: str = "x: i64[]", before: str = "", after: str = "", loop: str = ""
) -> ir.Kernel:
    """A verified kernel; it has the locals above, and one loop over ``i`` unless ``loop`` has others."""
    declared = "\n".join(f"local {name}: {dtype}" for name, dtype in LOCALS.items())
    result = f"-> {after.split(':')[0]}" if after else ""
    found = parse(
        f"""kernel k({params}) {result} {{
        {declared}
        {before}
        parallel {loop or "i in (0, 1, 1)"} {{
        {body}
        }}
        {after.partition(":")[2]}
        }}"""
    )
    verify(found)
    return found


def launch(found: ir.Kernel, count: int = 1, **args: Any) -> Any:
    return run(found, args, [(0, 1, count)])


def written(body: str, size: int = 4, before: str = "") -> list[int]:
    """What one iteration of ``body`` leaves in the array ``x``, which starts as zeros."""
    x = np.zeros(size, np.int64)
    launch(kernel(body, before=before), x=x)
    return x.tolist()


# --- launches ---------------------------------------------------------------------------------


def test_saxpy_is_numpys() -> None:
    saxpy = kernel("y[%i] = add(mul($scale, x[%i]), y[%i])", params="x: f32[], y: f32[], scale: f32")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 100)).astype(np.float32)
    expected = np.float32(0.1) * x + y
    assert launch(saxpy, 100, x=x, y=y, scale=np.float32(0.1)) is None
    np.testing.assert_array_equal(y, expected)


def test_iterations_run_row_by_row_from_start_by_step() -> None:
    lines: list[str] = []
    found = kernel('print %i, " ", %j', params="", loop="i in (0, 1, 1), j in (0, 1, 1)")
    run(found, {}, [(5, 2, 2), (-1, 3, 3)], on_print=lines.append)
    assert lines == ["5 -1", "5 2", "5 5", "7 -1", "7 2", "7 5"]
    run(found, {}, [(0, 1, 0), (0, 1, 5)], on_print=lines.append)
    assert len(lines) == 6


def test_each_iteration_starts_with_the_locals_as_before_left_them() -> None:
    found = kernel("%a = add(%a, %i)\nx[%i] = %a", before="%a = 10:i64")
    x = np.zeros(4, np.int64)
    launch(found, 4, x=x)
    assert x.tolist() == [10, 11, 12, 13]


def test_overlapping_arrays_keep_program_order() -> None:
    found = kernel("x[add(%i, 1:i64)] = y[%i]", params="x: i64[], y: i64[]")
    x = np.arange(5)
    launch(found, 4, x=x, y=x)
    assert x.tolist() == [0, 0, 0, 0, 0]


def test_arrays_of_any_dimension_are_flat() -> None:
    found = kernel("x[%i] = %i\ns[0:i64] = %i", params="x: i64[,], s: i64[.]")
    x, s = np.zeros((2, 3), np.int64), np.array(7)
    launch(found, 6, x=x, s=s)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert s == 5


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"])
def test_every_dtype_loads_and_stores(dtype: str) -> None:
    found = kernel("x[sub(1:i64, %i)] = x[%i]", params=f"x: {dtype}[]")
    numpy = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    extreme = np.finfo(numpy).max if dtype[0] == "f" else np.iinfo(numpy).max
    x = np.array([extreme, 0], numpy)
    launch(found, x=x)
    assert x[1] == x[0] == extreme


def test_the_result_reads_what_the_launch_stored_and_converts() -> None:
    found = kernel(
        "x[%i] = mul(%i, 50:i64)", before="%a = 1:i64", after="u8: %b = x[7:i64]\nreturn add(%b, %a)"
    )
    assert launch(found, 8, x=np.zeros(8, np.int64)) == 351 % 256
    found = kernel("", params="x: f64", after="i32: return $x")
    assert launch(found, x=-2.9) == -2
    assert launch(found, x=1e300) == 2**31 - 1
    found = kernel("", params="x: f64", after="f32: return $x")
    assert launch(found, x=0.1) == float(np.float32(0.1))


# --- control flow -----------------------------------------------------------------------------


def test_for_evaluates_its_range_once_and_keeps_its_own_counter() -> None:
    body = """%a = 3:i64
    for %j in (0:i64, %a, 1:i64) {
      %a = 100:i64
      x[%j] = add(x[%j], 1:i64)
      %j = 77:i64
    }
    x[3:i64] = %j"""
    assert written(body) == [1, 1, 1, 77]


@pytest.mark.parametrize(
    ("bounds", "values"),
    [((0, 5, 2), [0, 2, 4]), ((3, 0, 1), []), ((0, 3, 0), []), ((3, 0, -1), []), ((-2, 0, 1), [-2, -1])],
)
def test_for_runs_the_range(bounds: tuple[int, int, int], values: list[int]) -> None:
    lines: list[str] = []
    start, stop, step = bounds
    found = kernel(f"for %j in ({start}:i64, {stop}:i64, {step}:i64) {{\nprint %j\n}}", params="")
    run(found, {}, [(0, 1, 1)], on_print=lines.append)
    assert lines == [str(v) for v in values]


def test_for_near_the_ends_of_i64_does_not_wrap() -> None:
    low, high = -(2**63), 2**63 - 1
    body = f"""for %j in ({low}:i64, {high}:i64, {high}:i64) {{
      x[%k] = %j
      %k = add(%k, 1:i64)
    }}"""
    assert written(body, before="%k = 0:i64") == [low, -1, high - 1, 0]


def test_break_and_continue_belong_to_the_innermost_loop() -> None:
    body = """for %j in (0:i64, 4:i64, 1:i64) {
      %k = 0:i64
      while 1:i32 {
        %k = add(%k, 1:i64)
        if lt(%k, 3:i64) {
          continue
        }
        break
      }
      if eq(%j, 1:i64) {
        continue
      } else {
        if eq(%j, 3:i64) {
          break
        }
      }
      x[%j] = %k
    }"""
    assert written(body) == [3, 0, 3, 0]


def test_continue_ends_the_iteration_of_the_parallel_loop() -> None:
    found = kernel("block f {\nif mod(%i, 2:i64) {\ncontinue\n}\n}\nx[%i] = 1:i64")
    x = np.zeros(5, np.int64)
    launch(found, 5, x=x)
    assert x.tolist() == [1, 0, 1, 0, 1]


def test_leave_goes_to_the_end_of_its_block_out_of_loops() -> None:
    body = """block f {
      block g {
        for %j in (0:i64, 9:i64, 1:i64) {
          while 1:i32 {
            x[0:i64] = %j
            if eq(%j, 2:i64) {
              leave f
            }
            break
          }
          if eq(%j, 5:i64) {
            leave g
          }
        }
        x[1:i64] = 1:i64
      }
      x[2:i64] = 1:i64
    }
    x[3:i64] = 1:i64"""
    assert written(body) == [2, 0, 0, 1]
    assert written("block f {\nblock g {\nleave g\n}\nx[0:i64] = 1:i64\nleave f\nx[1:i64] = 1:i64\n}") == [
        1,
        0,
        0,
        0,
    ]


def test_conditions_are_true_unless_zero() -> None:
    body = "\n".join(
        f"if {value} {{\nx[{n}:i64] = 1:i64\n}}"
        for n, value in enumerate(["nan:f32", "-0.0:f64", "-1:i8", "0:u64"])
    )
    assert written(body) == [1, 0, 1, 0]


# --- laziness and bounds ----------------------------------------------------------------------


def test_only_what_is_needed_is_evaluated() -> None:
    found = kernel(
        """x[0:i64] = select(lt(%i, 0:i64), x[99:i64], 5:i64)
        x[1:i64] = cast.i64(and(lt(%i, 0:i64), x[99:i64]))
        x[2:i64] = cast.i64(or(ge(%i, 0:i64), x[99:i64]))
        x[3:i64] = cast.i64(and(2.5:f32, x[0:i64]))"""
    )
    x = np.zeros(4, np.int64)
    launch(found, x=x)
    assert x.tolist() == [5, 0, 1, 1]


@pytest.mark.parametrize("index", [-1, 4, 2**62])
@pytest.mark.parametrize("access", ["x[{}] = 1:i64", "%a = x[{}]", "atomic_add x[{}], 1:i64"])
def test_an_index_out_of_bounds_names_array_and_index(access: str, index: int) -> None:
    with pytest.raises(IndexError, match=f"array 'x': index {index} is out of bounds for 4 elements"):
        written(access.format(f"{index}:i64"))


def test_a_read_before_assignment_names_the_local() -> None:
    with pytest.raises(UnboundLocalError, match="local 'a' is read before it is assigned"):
        written("if 0:i32 {\n%a = 1:i64\n}\nx[0:i64] = %a")
    found = kernel("if eq(%i, 0:i64) {\n%a = 1:i64\n}\nx[%i] = %a")
    with pytest.raises(UnboundLocalError):  # iteration 1 does not see the local of iteration 0
        launch(found, 2, x=np.zeros(2, np.int64))


def test_local_arrays_belong_to_the_iteration_and_start_without_values() -> None:
    fill = """array s i64(2:i64, 2:i64)
    for %j in (0:i64, 4:i64, 1:i64) {
      s[%j] = add(%j, %i)
    }
    x[%i] = s[3:i64]"""
    x = np.zeros(2, np.int64)
    launch(kernel(fill), 2, x=x)
    assert x.tolist() == [3, 4]
    with pytest.raises(IndexError, match="array 's': index 4 is out of bounds for 4 elements"):
        written("array s i64(2:i64, 2:i64)\ns[4:i64] = 1:i64")
    with pytest.raises(UnboundLocalError, match="array 's': element 1 is read before it is stored"):
        written("array s i64(2:i64)\ns[0:i64] = 1:i64\nx[0:i64] = s[1:i64]")
    declared_outside = kernel(
        "if eq(%i, 0:i64) {\ns[0:i64] = 1:i64\n}\nx[%i] = s[0:i64]", before="array s i64(1:i64)"
    )
    with pytest.raises(UnboundLocalError):
        launch(declared_outside, 2, x=x)


# --- statements -------------------------------------------------------------------------------


def test_atomics_return_the_old_value() -> None:
    body = """x[0:i64] = 5:i64
    %a = atomic_max x[0:i64], 9:i64
    x[1:i64] = %a
    %a = atomic_cas x[0:i64], 9:i64, 4:i64
    %b = atomic_cas x[0:i64], 9:i64, 3:i64
    x[2:i64] = add(mul(%a, 10:i64), %b)
    atomic_sub x[3:i64], 1:i64"""
    assert written(body) == [4, 5, 94, -1]


def test_atomics_of_all_iterations_add_up() -> None:
    found = kernel("atomic_add x[mod(%i, 3:i64)], 1:u8", params="x: u8[]")
    x = np.array([250, 0, 0], np.uint8)
    launch(found, 30, x=x)
    assert x.tolist() == [4, 10, 10]  # wraps


def test_tables_convert_their_exact_values() -> None:
    found = parse(
        f"""kernel k(x: f32[], y: f64[]) {{
        local i: i64
        table T (0.1, {2**62 + 2**38 + 1})
        parallel i in (0, 2, 1) {{
        x[%i] = lookup.f32(T, %i)
        y[%i] = lookup.f64(T, %i)
        }}
        }}"""
    )
    x, y = np.zeros(2, np.float32), np.zeros(2)
    launch(found, 2, x=x, y=y)
    assert x.tolist() == [float(np.float32(0.1)), 2.0**62 + 2.0**39]
    assert y.tolist() == [0.1, 2.0**62 + 2.0**38]


def test_print_writes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    launch(
        kernel(
            'print "a b", 0.10000000149011612:f32, " ", 0.1:f64, " ", -0.0:f32, " ", 1e20:f64, " ", '
            'nan:f32, " ", -3:i8, "é"\nprint',
            params="",
        )
    )
    assert capsys.readouterr().out == "a b0.1 0.1 -0.0 1e+20 nan -3é\n\n"


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"x": np.zeros(2)}, "kernel 'k' has parameters x, n"),
        ({"x": np.zeros(2), "n": 1, "m": 1}, "kernel 'k' has parameters x, n"),
        ({"x": np.zeros(2, np.float32), "n": 1}, "parameter 'x' is an array of f64 with ndim 1"),
        ({"x": np.zeros((2, 2)), "n": 1}, "parameter 'x' is an array of f64 with ndim 1"),
        ({"x": 1.0, "n": 1}, "parameter 'x' is an array of f64 with ndim 1"),
        ({"x": np.zeros(4)[::2], "n": 1}, "array 'x' is not C-contiguous"),
        ({"x": np.zeros(2), "n": 256}, "parameter 'n' of u8 does not represent 256"),
        ({"x": np.zeros(2), "n": 1.5}, "parameter 'n' of u8 does not represent 1.5"),
        ({"x": np.zeros(2), "n": np.zeros(2)}, "parameter 'n' is a scalar of u8"),
    ],
)
def test_arguments_must_fit(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"kernel|parameter|array") as caught:
        launch(kernel("", params="x: f64[], n: u8"), **args)
    assert str(caught.value) == message


def test_scalars_may_be_numpys_and_nan() -> None:
    found = kernel("x[%i] = $v\nx[add(%i, 1:i64)] = cast.f32($n)", params="x: f32[], v: f32, n: u8")
    x = np.zeros(2, np.float32)
    launch(found, x=x, v=np.float32(0.1), n=np.int64(255))
    assert x.tolist() == [float(np.float32(0.1)), 255.0]
    launch(found, x=x, v=float("nan"), n=True)
    assert np.isnan(x[0])
    assert x[1] == 1.0
    with pytest.raises(ValueError, match=r"parameter 'v' of f32 does not represent 0\.1"):
        launch(found, x=x, v=0.1, n=0)


def test_templates_and_other_launches_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel 'k' is a template"):
        run(parse("template k() {\nparallel i in (0, 1, 1) {\n}\n}"), {}, [(0, 1, 1)])
    with pytest.raises(ValueError, match="kernel 'k' has 1 dimensions, not 2"):
        run(kernel("", params=""), {}, [(0, 1, 1), (0, 1, 1)])


@generated_kernels
@given(st.data(), kernels())
def test_generated_kernels_run_and_their_texts_do_the_same(data: st.DataObject, found: ir.Kernel) -> None:
    args = data.draw(arguments(found))
    ranges = data.draw(launches(found))
    outcomes = []
    for version in (found, parse(to_text(found))):
        copies = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in args.items()}
        lines: list[str] = []
        result = run(version, copies, ranges, on_print=lines.append)
        stored = [v.tobytes() for v in copies.values() if isinstance(v, np.ndarray)]
        outcomes.append((repr(result), lines, stored))
    assert outcomes[0] == outcomes[1]
