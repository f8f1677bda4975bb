"""Statements: control flow, loops over parts of the range, locals, memory, print and results."""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest

from codegen.harness import Compiled, Printed
from tack.codegen.llvm import generate, jit, print_sites
from tack.codegen.llvm.module import MAX_LOCAL_BYTES
from tack.dtypes import ALL_DTYPES, DType
from tack.ir.parser import parse

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

pytestmark = pytest.mark.usefixtures("each_generator")


def per_element(body: str, locals: str = "", arrays: str = "", before: str = "") -> str:
    """A kernel over ``x`` and ``o``, both i64 arrays, with ``body`` run for each ``%i``."""
    return f"""kernel k(x: i64[], o: i64[]{arrays}) {{
      local i: i64
      {locals}
      {before}
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        {body}
      }}
    }}"""


def apply(text: str, values: list[int]) -> list[int]:
    """What the kernel stores for each of ``values``."""
    x, o = np.array(values, np.int64), np.full(len(values), -99, np.int64)
    Compiled(text)({"x": x, "o": o}, [(0, 1, len(values))])
    return [int(v) for v in o]


# --- the parallel loop --------------------------------------------------------------------------


def visits(ndim: int, start_step: str) -> str:
    """A kernel that records, at each iteration's place, the values of its variables."""
    names = "ijklmn"[:ndim]
    locals = "\n".join(f"local {n}: i64" for n in (*names, "at"))
    ranges = ", ".join(f"{n} in ({start_step})" for n in names)
    stores = "\n".join(f"o[add(mul(%at, {ndim}:i64), {d}:i64)] = %{n}" for d, n in enumerate(names))
    return f"""kernel visits(seen: i64[], o: i64[]) {{
      {locals}
      parallel {ranges} {{
        %at = atomic_add seen[0:i64], 1:i64
        {stores}
        %i = 77:i64
      }}
    }}"""


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    ("counts", "bounds"),
    [
        ((7,), "0:i64, 1:i64, 1:i64"),
        ((7,), "$unused, 1:i64, 3:i64"),
        ((3, 5), "0:i64, 1:i64, 1:i64"),
        ((5, 1), "0:i64, 1:i64, 1:i64"),
        ((1, 6), "-2:i64, 1:i64, 1:i64"),
        ((2, 3, 4), "0:i64, 1:i64, 1:i64"),
        ((3, 1, 2, 2), "5:i64, 9:i64, 2:i64"),
        ((2, 2, 1, 3, 2), "0:i64, 1:i64, 1:i64"),
        ((2, 1, 2, 2, 1, 3), "0:i64, 1:i64, 4:i64"),
    ],
)
def test_any_split_of_the_range_runs_each_iteration_once(counts: tuple[int, ...], bounds: str) -> None:
    starts_steps = [(3 - 2 * d, d + 1) for d in range(len(counts))]
    if bounds.startswith("0:"):
        starts_steps = [(0, step) for _, step in starts_steps]
    if bounds.endswith(" 1:i64"):
        starts_steps = [(start, 1) for start, _ in starts_steps]
    text = visits(len(counts), bounds).replace("$unused", "-4:i64")
    compiled = Compiled(text)
    total = int(np.prod(counts))
    launch = [(start, step, count) for (start, step), count in zip(starts_steps, counts, strict=True)]
    expected = list(itertools.product(*(range(s, s + st * c, st) for s, st, c in launch)))
    draw = random.Random(3)
    for trial in range(40):
        cuts = sorted(draw.randint(0, total) for _ in range(trial % 6))
        out, seen = np.zeros((total, len(counts)), np.int64), np.zeros(1, np.int64)
        compiled({"seen": seen, "o": out}, launch, splits=(0, *cuts, total))
        assert seen[0] == total
        assert [tuple(row) for row in out.tolist()] == expected


@pytest.mark.cpu_only
def test_empty_and_reversed_parts_run_nothing() -> None:
    compiled = Compiled(visits(2, "0:i64, 1:i64, 1:i64"))
    seen, out = np.zeros(1, np.int64), np.zeros(8, np.int64)
    for launch in ([(0, 1, 0), (0, 1, 5)], [(0, 1, 5), (0, 1, 0)]):
        compiled({"seen": seen, "o": out}, launch)
    compiled({"seen": seen, "o": out}, [(0, 1, 2), (0, 1, 2)], splits=(3, 3, 1))
    assert seen[0] == 0


@pytest.mark.cpu_only
def test_iterations_past_two_to_the_32() -> None:
    text = """kernel far(o: i64[]) {
      local i: i64
      parallel i in (0:i64, 1:i64, 1:i64) {
        o[sub(%i, 1099511627776:i64)] = %i
      }
    }"""
    out = np.zeros(4, np.int64)
    first = 1 << 40
    Compiled(text)({"o": out}, [(0, 1, first + 4)], splits=(first, first + 4))
    assert out.tolist() == [first, first + 1, first + 2, first + 3]


def test_loop_variables_wrap_as_i64() -> None:
    text = """kernel wrap(o: i64[]) {
      local i: i64
      parallel i in (1:i64, 2:i64, 3:i64) {
        o[bitand(%i, 3:i64)] = %i
      }
    }"""
    out = np.zeros(4, np.int64)
    Compiled(text)({"o": out}, [(I64_MAX - 1, 1, 2)])
    assert out.tolist() == [0, 0, I64_MAX - 1, I64_MAX]


# --- sequential loops ---------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["1:i64", "2:i64", "7:i64", "0:i64", "-1:i64", "$s"])
def test_for_loops_count_as_ranges_do(step: str) -> None:
    text = f"""kernel count(a: i64[], b: i64[], s: i64, n: i64[], last: i64[]) {{
      local i: i64
      local j: i64
      parallel i in (0:i64, dim(a, 0), 1:i64) {{
        n[%i] = 0:i64
        for %j in (a[%i], b[%i], {step}) {{
          n[%i] = add(n[%i], 1:i64)
          last[%i] = %j
          %j = 1000:i64
        }}
      }}
    }}"""
    compiled = Compiled(text)
    ends = [
        (0, 0),
        (0, 1),
        (0, 10),
        (-5, 5),
        (5, -5),
        (3, 24),
        (I64_MAX - 5, I64_MAX),
        (I64_MIN, I64_MIN + 20),
    ]
    ends += [(I64_MAX, I64_MIN), (-1, I64_MIN)]
    a, b = (np.array([e[k] for e in ends], np.int64) for k in (0, 1))
    fixed = None if step == "$s" else int(step.split(":")[0])
    for s in (fixed,) if fixed is not None else (1, 2, 3, 0, -4, I64_MAX, I64_MIN):
        n, last = np.zeros(len(ends), np.int64), np.full(len(ends), -7, np.int64)
        compiled({"a": a, "b": b, "s": s, "n": n, "last": last}, [(0, 1, len(ends))])
        ranges = [range(*e, s) if s > 0 else range(0) for e in ends]
        assert n.tolist() == [len(r) for r in ranges]
        assert last.tolist() == [r[-1] if r else -7 for r in ranges]


def test_a_loop_over_nearly_all_of_i64_can_be_left() -> None:
    for step in ("1:i64", "2:i64", "$s"):
        text = f"""kernel leave(s: i64, o: i64[]) {{
          local i: i64
          local j: i64
          parallel i in (0:i64, 1:i64, 1:i64) {{
            for %j in ({I64_MIN}:i64, {I64_MAX}:i64, {step}) {{
              o[%i] = add(o[%i], 1:i64)
              if eq(o[%i], 5:i64) {{
                break
              }}
            }}
          }}
        }}"""
        out = np.zeros(1, np.int64)
        Compiled(text)({"s": 1, "o": out}, [(0, 1, 1)])
        assert out[0] == 5


def test_break_continue_and_nesting() -> None:
    text = per_element(
        """
        %s = 0:i64
        for %j in (0:i64, 10:i64, 1:i64) {
          if eq(mod(%j, 3:i64), 1:i64) {
            continue
          }
          %k = 0:i64
          while 1:i64 {
            %k = add(%k, 1:i64)
            if ge(%k, %j) {
              break
              %s = 1000000:i64
            } else {
              continue
            }
          }
          if gt(%j, x[%i]) {
            break
          }
          %s = add(%s, mul(%k, 100:i64))
        }
        if eq(x[%i], 4:i64) {
          continue
        }
        o[%i] = %s
        """,
        "local j: i64\n local k: i64\n local s: i64",
    )

    def plain(x: int) -> int:
        s = 0
        for j in range(10):
            if j % 3 == 1:
                continue
            k = 0
            while True:
                k += 1
                if k >= j:
                    break
            if j > x:
                break
            s += k * 100
        return -99 if x == 4 else s

    values = list(range(-2, 13))
    assert apply(text, values) == [plain(x) for x in values]


def test_leave_goes_out_of_loops_and_blocks() -> None:
    text = per_element(
        """
        %r = 0:i64
        block outer {
          block inner {
            for %j in (0:i64, 100:i64, 1:i64) {
              while 1:i64 {
                if eq(%j, x[%i]) {
                  leave inner
                }
                if gt(%j, 5:i64) {
                  %r = 100:i64
                  leave outer
                }
                break
              }
            }
            %r = 5000:i64
          }
          %r = add(%r, 1:i64)
          block empty {
          }
          if %r {
            leave outer
          }
          %r = 7777:i64
        }
        o[%i] = %r
        """,
        "local j: i64\n local r: i64",
    )
    assert apply(text, [0, 3, 5, 6, 7, 200]) == [1, 1, 1, 1, 100, 100]


def test_statements_after_an_exit_never_run() -> None:
    text = per_element(
        """
        o[%i] = 1:i64
        while 1:i64 {
          if x[%i] {
            break
          } else {
            break
          }
          o[%i] = 2:i64
        }
        continue
        o[%i] = 3:i64
        while 1:i64 {
          o[%i] = 4:i64
        }
        """
    )
    assert apply(text, [0, 1]) == [1, 1]


# --- lazy expressions ---------------------------------------------------------------------------


def test_unselected_arms_do_not_load() -> None:
    text = """kernel lazy(x: i64[], at: i64[], o: i64[]) {
      local i: i64
      parallel i in (0:i64, dim(at, 0), 1:i64) {
        o[%i] = select(and(ge(at[%i], 0:i64), lt(at[%i], 4:i64)), x[at[%i]], -1:i64)
        if or(gt(at[%i], 4:i64), and(eq(at[%i], 2:i64), eq(x[at[%i]], 22:i64))) {
          o[%i] = add(o[%i], 1000:i64)
        }
      }
    }"""
    x = np.array([20, 21, 22, 23], np.int64)
    at = np.array([0, 1, 2, 3, 4, -1, 1 << 60, -(1 << 60)], np.int64)
    out = np.zeros(8, np.int64)
    Compiled(text)({"x": x, "at": at, "o": out}, [(0, 1, 8)])
    assert out.tolist() == [20, 21, 1022, 23, -1, -1, 999, -1]


def test_nested_lazy_expressions() -> None:
    text = per_element(
        "o[%i] = select(or(and(x[%i], gt(floordiv(100:i64, x[%i]), 20:i64)), not(x[%i])), "
        "select(x[%i], mod(100:i64, x[%i]), 55:i64), -1:i64)"
    )
    values = [-3, 0, 1, 3, 4, 7]
    assert apply(text, values) == [
        ((100 % v) if v else 55) if (v and 100 // v > 20) or not v else -1 for v in values
    ]


# --- locals -------------------------------------------------------------------------------------


def test_each_iteration_starts_with_the_locals_of_before() -> None:
    text = """kernel carry(x: i64[], o: i64[], seed: i64) {
      local b: f64
      local i: i64
      local t: i64
      %t = mul($seed, 10:i64)
      %b = 0.5:f64
      for %i in (0:i64, 3:i64, 1:i64) {
        %t = add(%t, %i)
      }
      parallel i in (0:i64, dim(x, 0), 1:i64) {
        o[%i] = add(%t, cast.i64(mul(%b, 2.0:f64)))
        %t = add(%t, x[%i])
        %b = 100.0:f64
        o[%i] = add(mul(o[%i], 1000:i64), %t)
      }
    }"""
    x, out = np.arange(5, dtype=np.int64), np.zeros(5, np.int64)
    Compiled(text)({"x": x, "o": out, "seed": 4}, [(0, 1, 5)], splits=(0, 2, 5))
    assert out.tolist() == [44 * 1000 + 43 + k for k in range(5)]


def test_result_and_its_conversion() -> None:
    text = """kernel total(x: f64[], s: f32) -> i32 {
      local a: f64
      local i: i64
      %a = cast.f64($s)
      parallel i in (0:i64, dim(x, 0), 1:i64) {
        x[%i] = add(x[%i], 1.0:f64)
      }
      for %i in (0:i64, 3:i64, 1:i64) {
        %a = add(%a, x[%i])
      }
      return mul(%a, 1e3:f64)
    }"""
    x = np.array([1.5, 2.5, 3.25])
    assert Compiled(text)({"x": x, "s": 0.5}, [(0, 1, 3)]) == 10750
    assert Compiled(text.replace("-> i32", "-> u8"))({"x": x, "s": 0.5}, [(0, 1, 3)]) == 255
    assert Compiled(text.replace("-> i32", "-> f32"))({"x": x, "s": 0.5}, [(0, 1, 0)]) == 13750.0


def test_scalars_of_every_type_arrive() -> None:
    for dtype in ALL_DTYPES:
        text = f"""kernel scalar(a: {dtype}, o: {dtype}[], b: {dtype}) {{
          local i: i64
          parallel i in (0:i64, 2:i64, 1:i64) {{
            o[%i] = select(%i, $b, $a)
          }}
        }}"""
        out = np.zeros(2, dtype.numpy)
        a, b = (1.5, -2.25) if dtype.is_float else (dtype.max, dtype.min)
        Compiled(text)({"a": a, "b": b, "o": out}, [(0, 1, 2)])
        assert out.tolist() == [a, b]


def test_any_names_work() -> None:
    text = """kernel größe(entry: i64[], loop: i64[], launch: i64, é: f64) {
      local done: i64
      local start: i64
      local x.y.2: i64
      parallel start in (0:i64, dim(entry, 0), 1:i64) {
        %done = add(%start, $launch)
        %x.y.2 = mul(%done, cast.i64($é))
        loop[%start] = %x.y.2
      }
    }"""
    out = np.zeros(3, np.int64)
    Compiled(text)({"entry": out, "loop": out, "launch": 5, "é": 2.0}, [(0, 1, 3)])
    assert out.tolist() == [10, 12, 14]


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.cpu_only
def test_unaligned_arrays() -> None:
    for dtype in ALL_DTYPES:
        text = f"""kernel copy(x: {dtype}[], o: {dtype}[]) {{
          local i: i64
          parallel i in (0:i64, dim(x, 0), 1:i64) {{
            o[%i] = x[%i]
          }}
        }}"""
        raw, out = np.arange(1, 70 * dtype.itemsize, dtype=np.uint8), np.zeros(70 * dtype.itemsize, np.uint8)
        x = raw[1 : 1 + 67 * dtype.itemsize].view(dtype.numpy)
        o = out[3 : 3 + 67 * dtype.itemsize].view(dtype.numpy)
        Compiled(text)({"x": x, "o": o}, [(0, 1, 67)])
        assert o.tobytes() == x.tobytes()
        assert not out[:3].any()
        assert not out[3 + 67 * dtype.itemsize :].any()


def test_overlapping_arrays_keep_program_order() -> None:
    text = """kernel shift(x: i64[], o: i64[]) {
      local i: i64
      local j: i64
      parallel i in (0:i64, 1:i64, 1:i64) {
        for %j in (0:i64, 20:i64, 1:i64) {
          o[%j] = add(x[%j], 1:i64)
        }
      }
    }"""
    base = np.zeros(21, np.int64)
    Compiled(text)({"x": base[:20], "o": base[1:]}, [(0, 1, 1)])
    assert base.tolist() == list(range(21))


def test_loads_see_earlier_stores_of_the_iteration() -> None:
    text = per_element(
        """
        o[%i] = x[%i]
        for %j in (0:i64, 5:i64, 1:i64) {
          o[%i] = add(o[%i], %j)
        }
        o[%i] = mul(o[%i], o[%i])
        """,
        "local j: i64",
    )
    assert apply(text, [0, 1, -11]) == [100, 121, 1]
    x, out = np.array([3], np.int64), np.zeros(1, np.int64)
    Compiled(text, disjoint=True)({"x": x, "o": out}, [(0, 1, 1)])
    assert out[0] == 169


def test_local_arrays() -> None:
    text = per_element(
        """
        array t i64 (3:i64, 4:i64)
        array f f32 (2:i64)
        for %j in (0:i64, 12:i64, 1:i64) {
          t[%j] = mul(%j, x[%i])
        }
        f[0:i64] = cast.f32(x[%i])
        f[1:i64] = mul(f[0:i64], 0.5:f32)
        o[%i] = add(t[add(mul(2:i64, 4:i64), mod(x[%i], 4:i64))], cast.i64(f[1:i64]))
        """,
        "local j: i64",
    )
    assert apply(text, [0, 1, 2, 7, -6]) == [(8 + v % 4) * v + int(v / 2) for v in (0, 1, 2, 7, -6)]


def test_reading_a_new_local_array_is_harmless() -> None:
    text = per_element(
        """
        array t i64 (64:i64)
        %r = t[bitand(x[%i], 63:i64)]
        if gt(%r, 0:i64) {
          o[%i] = 1:i64
        } else {
          o[%i] = 0:i64
        }
        """,
        "local r: i64",
    )
    assert set(apply(text, list(range(100)))) <= {0, 1}


@pytest.mark.cpu_only
def test_large_local_arrays_are_refused() -> None:
    text = per_element("array t u8 ({n}:i64)\n t[0:i64] = 1:u8\n o[%i] = cast.i64(t[0:i64])")
    assert apply(text.replace("{n}", str(MAX_LOCAL_BYTES)), [5]) == [1]
    with pytest.raises(
        ValueError, match=r"kernel 'k': local and shared arrays take 1048577 bytes; at most 1048576"
    ):
        generate(parse(text.replace("{n}", str(MAX_LOCAL_BYTES + 1))))


def test_tables() -> None:
    text = """kernel look(o: f32[], p: i8[], at: i64[]) {
      local i: i64
      table T (1, 2.5, -3e100, 16777217, 1e-50)
      parallel i in (0:i64, dim(at, 0), 1:i64) {
        o[%i] = lookup.f32(T, at[%i])
        p[%i] = lookup.i8(T, at[%i])
      }
    }"""
    o, p, at = np.zeros(6, np.float32), np.zeros(6, np.int8), np.array([4, 3, 2, 1, 0, 3], np.int64)
    Compiled(text)({"o": o, "p": p, "at": at}, [(0, 1, 6)])
    assert o.tolist() == [0.0, 16777216.0, -np.inf, 2.5, 1.0, 16777216.0]
    assert p.tolist() == [0, 1, -128, 2, 1, 1]


# --- atomics ------------------------------------------------------------------------------------


def in_threads(compiled: Compiled, args: dict[str, np.ndarray], count: int, threads: int = 4) -> None:
    """Runs ``count`` iterations in interleaved chunks on several threads."""
    bounds = [count * k // 40 for k in range(41)]

    def work(first: int) -> None:
        for chunk in range(first, 40, threads):
            compiled(args, [(0, 1, count)], splits=bounds[chunk : chunk + 2])

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_atomics_on_every_type(dtype: DType) -> None:
    ops = ["add", "sub", "min", "max", "exchange"] + ([] if dtype.is_float else ["and", "or", "xor", "cas"])
    operand = {"cas": ", x[%i], x[sub(99999:i64, %i)]"}
    lines = ""
    for k, op in enumerate(ops):
        lines += f"%old = atomic_{op} t[{k}:i64]{operand.get(op, ', x[%i]')}\n old{k}[%i] = %old\n"
    arrays = "".join(f", old{k}: {dtype}[]" for k in range(len(ops)))
    text = f"""kernel atomics(x: {dtype}[], t: {dtype}[]{arrays}) {{
      local i: i64
      local old: {dtype}
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        {lines}
      }}
    }}"""
    n = 100_000
    draw = np.random.default_rng(5)
    x = draw.integers(0, 100, n).astype(dtype.numpy)
    start = np.full(len(ops), 50, dtype.numpy)
    t = start.copy()
    olds = {f"old{k}": np.zeros(n, dtype.numpy) for k in range(len(ops))}
    in_threads(Compiled(text), {"x": x, "t": t, **olds}, n)
    found = dict(zip(ops, t.tolist(), strict=True))
    total = int(x.astype(np.int64).sum())
    wrap = (
        (lambda v: float(np.float32(v)) if dtype.bits == 32 else float(v)) if dtype.is_float else dtype.wrap
    )
    assert found["add"] == wrap(50 + total)  # exact in f32 too: below 2^24
    assert found["sub"] == wrap(50 - total)
    assert found["min"] == min(50, x.min())
    assert found["max"] == max(50, x.max())
    # What was exchanged in is exchanged out again, but for the last one.
    exchanged = sorted([*olds["old4"].tolist(), found["exchange"]])
    assert exchanged == sorted([*x.tolist(), 50])
    if dtype.is_integer:
        assert found["and"] == int(np.bitwise_and.reduce(x)) & 50
        assert found["or"] == int(np.bitwise_or.reduce(x)) | 50
        assert found["xor"] == int(np.bitwise_xor.reduce(x)) ^ 50
        assert set(olds["old8"].tolist()) <= {50, *x.tolist()}


@pytest.mark.cpu_only
def test_old_values_count_every_iteration_once() -> None:
    text = """kernel ticket(c: i32[], o: i32[]) {
      local i: i64
      local t: i32
      parallel i in (0:i64, dim(o, 0), 1:i64) {
        %t = atomic_add c[0:i64], 1:i32
        o[%i] = %t
      }
    }"""
    c, o = np.zeros(1, np.int32), np.zeros(50_000, np.int32)
    in_threads(Compiled(text), {"c": c, "o": o}, 50_000)
    assert sorted(o.tolist()) == list(range(50_000))


@pytest.mark.cpu_only
def test_cas_spin_loop() -> None:
    text = """kernel spin(c: u64[], o: u64[]) {
      local done: i64
      local i: i64
      local old: u64
      local seen: u64
      parallel i in (0:i64, dim(o, 0), 1:i64) {
        %old = c[0:i64]
        while 1:i32 {
          %seen = atomic_cas c[0:i64], %old, add(mul(%old, 3:u64), 1:u64)
          if eq(%seen, %old) {
            break
          }
          %old = %seen
        }
        o[%i] = %old
      }
    }"""
    c, o = np.array([7], np.uint64), np.zeros(20_000, np.uint64)
    in_threads(Compiled(text), {"c": c, "o": o}, 20_000)
    value, expected = 7, []
    for _ in range(20_000):
        expected.append(value)
        value = (value * 3 + 1) % (1 << 64)
    assert sorted(o.tolist()) == sorted(expected)
    assert int(c[0]) == value


def test_float_atomics_keep_numbers_and_order_negatives() -> None:
    text = """kernel extremes(x: f32[], t: f32[]) {
      local i: i64
      parallel i in (0:i64, dim(x, 0), 1:i64) {
        atomic_min t[0:i64], x[%i]
        atomic_max t[1:i64], x[%i]
      }
    }"""
    x = np.array([-1.5, -7.25, -0.5, -3.0], np.float32)
    t = np.array([-1.0, -100.0], np.float32)
    Compiled(text)({"x": x, "t": t}, [(0, 1, 4)])
    assert t.tolist() == [-7.25, -0.5]


# --- print --------------------------------------------------------------------------------------


def test_print_passes_every_type_and_site() -> None:
    casts = ", ".join(f"cast.{d}(x[%i])" for d in ALL_DTYPES)
    text = per_element(
        f"""
        print "all", {casts}
        if gt(x[%i], 0:i64) {{
          print "only text"
        }}
        for %j in (0:i64, 2:i64, 1:i64) {{
          print %j, "j", mul(0.5:f32, cast.f32(%j))
        }}
        """,
        "local j: i64",
    )
    compiled = Compiled(text)
    printed: list[Printed] = []
    x = np.array([-3, 300], np.int64)
    compiled({"x": x, "o": x}, [(0, 1, 2)], printed=printed)
    assert printed == [
        (0, [-3, 253, -3, 65533, -3, (1 << 32) - 3, -3, (1 << 64) - 3, -3.0, -3.0]),
        (2, [0, 0.0]),
        (2, [1, 0.5]),
        (0, [44, 44, 300, 300, 300, 300, 300, 300, 300.0, 300.0]),
        (1, []),
        (2, [0, 0.0]),
        (2, [1, 0.5]),
    ]
    assert [site.parts[0] for site in print_sites(compiled.kernel)][:2] == ["all", "only text"]


# --- what LLVM makes of it ----------------------------------------------------------------------

SAXPY = """kernel saxpy(a: f32, x: f32[], y: f32[]) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    y[%i] = add(mul($a, x[%i]), y[%i])
  }
}"""

CLAMPED_STENCIL = """kernel stencil(x: f64[], y: f64[], n: i64) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    y[%i] = mul(0.5:f64, add(x[%i], select(and(gt(%i, 3:i64), lt(%i, $n)), mul($s, 2.0:f64), 1.0:f64)))
  }
}""".replace("n: i64)", "n: i64, s: f64)")

HEAT = """kernel heat(u: f32[,], v: f32[,], c: f32) {
  local at: i64
  local i: i64
  local j: i64
  parallel i in (1:i64, sub(dim(u, 0), 1:i64), 1:i64), j in (1:i64, sub(dim(u, 1), 1:i64), 1:i64) {
    %at = add(mul(%i, 64:i64), %j)
    v[%at] = add(u[%at], mul($c, add(u[add(%at, 1:i64)], add(u[add(%at, 64:i64)], u[sub(%at, 64:i64)]))))
  }
}"""


@pytest.mark.cpu_only
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("text", [SAXPY, CLAMPED_STENCIL, HEAT], ids=["saxpy", "select", "heat"])
def test_loops_are_vectorized(text: str, disjoint: bool) -> None:
    module = generate(parse(text), disjoint=disjoint)
    optimized = jit.optimized_ir(module)
    assert "x float>" in optimized or "x double>" in optimized
    assert ("!noalias" in str(module)) == disjoint
    assert not (disjoint and "vector.memcheck" in optimized)
    assert "udiv" not in optimized.split("loop")[-1]


@pytest.mark.cpu_only
def test_inner_loops_have_no_division() -> None:
    kernel = parse(visits(3, "0:i64, 1:i64, 1:i64"))
    divisions = str(generate(kernel)).count("udiv")
    assert divisions == 2  # per chunk, to find where it starts
