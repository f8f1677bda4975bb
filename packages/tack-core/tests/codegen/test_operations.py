"""Every operator, builtin, conversion and comparison on every dtype, against exact Python numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from codegen.harness import Compiled
from tack.codegen.c import builtins as c_builtins
from tack.codegen.c import expressions as c_expressions
from tack.codegen.c import operators as c_operators
from tack.codegen.c import statements as c_statements
from tack.codegen.llvm.builtins import CALLS, TESTS
from tack.codegen.llvm.expressions import VALUES
from tack.codegen.llvm.operators import BINARY, UNARY
from tack.codegen.llvm.statements import STATEMENTS
from tack.dtypes import ALL_DTYPES, DType, f32, f64, i8, i32, i64, u8, u64
from tack.ir import nodes as ir
from tack.ir import semantics
from tack.ir.semantics import BINARY_OPS, COMPARISONS, UNARY_OPS
from tack.lang.builtins import BUILTINS

pytestmark = pytest.mark.usefixtures("each_generator")

INTEGER_ONLY = {"shl", "shr", "bitand", "bitor", "bitxor"}
SHARED_CALLS = (
    *("floor", "ceil", "round", "trunc", "sign", "abs", "min", "max"),
    *("isnan", "isinf", "isfinite", "any", "all", "where"),
)
EXACT_FLOAT_CALLS = ("sqrt", "fmod", "copysign", "fma", *SHARED_CALLS)
INTEGER_CALLS = ("popcount", "clz", "ctz", *SHARED_CALLS)


def const(value: int | float, dtype: DType = i64) -> ir.Const:
    return ir.Const(value, type=dtype)


def column(index: int, name: str, dtype: DType) -> ir.Load:
    """Element ``%i`` of the array ``name``."""
    return ir.Load(name, (ir.Local("i", type=i64),), type=dtype)


def table(expressions: Sequence[ir.Expr], inputs: Sequence[tuple[str, DType]]) -> ir.Kernel:
    """A kernel that stores each expression of ``%i`` to an array of its own, ``out0``, ``out1``, ..."""
    at = ir.Local("i", type=i64)
    stores = tuple(ir.Store(f"out{k}", (at,), e) for k, e in enumerate(expressions))
    outputs = [(f"out{k}", e.type) for k, e in enumerate(expressions)]
    params = tuple(ir.Parameter(name, ir.Array(dtype, 1)) for name, dtype in (*inputs, *outputs))
    loop = ir.Parallel(("i",), (ir.Range(const(0), ir.Dim(params[0].name, 0), const(1)),), stores)
    return ir.Kernel("table", params, (), loop, (), None, None, {"i": i64}, {}, typed=True)


def evaluate(
    expressions: Sequence[ir.Expr], **inputs: tuple[DType, Sequence[int | float]]
) -> list[np.ndarray]:
    """What the compiled ``expressions`` give for each row of ``inputs``."""
    arrays = {name: np.array(values, dtype.numpy) for name, (dtype, values) in inputs.items()}
    rows = len(next(iter(arrays.values())))
    outputs = [np.zeros(rows, e.type.numpy) for e in expressions]
    compiled = Compiled(table(expressions, [(name, dtype) for name, (dtype, _) in inputs.items()]))
    compiled(arrays | {f"out{k}": out for k, out in enumerate(outputs)}, [(0, 1, rows)])
    return outputs


def samples(dtype: DType) -> list[int | float]:
    """Extremes, neighbours of powers of two, and random numbers of all sizes."""
    draw = random.Random(str(dtype))
    if dtype.is_integer:
        found = {0, 1, 2, 3, 5, 7, 10, -1, -2, -3, -7, dtype.min, dtype.min + 1, dtype.max, dtype.max - 1}
        found |= {sign * (1 << k) + d for k in range(dtype.bits) for d in (-1, 0, 1) for sign in (1, -1)}
        found |= {draw.randrange(-(1 << k), 1 << k) for k in range(1, dtype.bits + 1)}
        chosen = sorted(v for v in found if dtype.holds(v))
        return chosen if len(chosen) < 60 else [*draw.sample(chosen, 56), dtype.min, dtype.max, 0, 1]
    edges = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 7.0, 1e-3, 1e10, 2.0**31, 2.0**63, 2.0**64, math.inf]
    limits = np.finfo(dtype.numpy)
    edges += [
        float(limits.max),
        float(limits.tiny),
        float(limits.smallest_subnormal),
        1 - float(limits.epsneg),
    ]
    edges += [
        semantics.round_to(draw.uniform(1, 2) * 2.0 ** draw.randrange(-40, 40), dtype) for _ in range(8)
    ]
    return [semantics.round_to(sign * v, dtype) for v in edges for sign in (1, -1)] + [math.nan]


def assert_same(got: np.ndarray, expected: Sequence[int | float], rows: Sequence[object], what: str) -> None:
    """Equal bit for bit, but that one NaN is as good as another."""
    wanted = np.array(expected, got.dtype)
    if got.dtype.kind == "f":
        bits = f"u{got.dtype.itemsize}"
        wrong = (got.view(bits) != wanted.view(bits)) & ~(np.isnan(got) & np.isnan(wanted))
    else:
        wrong = got != wanted
    where = np.flatnonzero(wrong)
    shown = [(rows[k], got[k].item(), wanted[k].item()) for k in where[:5]]
    assert not len(where), f"{what}: {len(where)} wrong: (operands, got, expected) {shown}"


# --- completeness -------------------------------------------------------------------------------


def subclasses(base: type[ir.Node]) -> set[type]:
    return {c for c in vars(ir).values() if isinstance(c, type) and issubclass(c, base) and c is not base}


@pytest.mark.cpu_only
def test_every_builtin_has_one_rule() -> None:
    assert CALLS.keys() | TESTS.keys() | {"where"} == BUILTINS.keys()
    assert not CALLS.keys() & TESTS.keys()
    assert c_builtins.CALLS.keys() == BUILTINS.keys()


@pytest.mark.cpu_only
def test_every_operator_and_node_has_a_rule() -> None:
    assert BINARY.keys() | {"pow"} == set(BINARY_OPS)
    assert UNARY.keys() | {"not"} == set(UNARY_OPS)
    assert c_operators.BINARY.keys() == set(BINARY_OPS)
    assert c_operators.UNARY_OPERATORS.keys() | {"not"} == set(UNARY_OPS)
    # A typed kernel has no Meet and no Sample, and Dim in its ranges only.
    expressions, statements = subclasses(ir.Expr) - {ir.Dim, ir.Meet}, subclasses(ir.Stmt) - {ir.Sample}
    # The value of a comparison is its condition; the CPU has no texture unit.
    assert VALUES.keys() | {ir.Compare, ir.Logical, ir.Fetch} == expressions
    assert c_expressions.VALUES.keys() == expressions
    # Regions end at the others, so that they are no statements of a lane.
    assert STATEMENTS.keys() | {ir.Barrier, ir.BlockReduce} == statements
    assert c_statements.STATEMENTS.keys() == statements


# --- operators ----------------------------------------------------------------------------------


def binary_ops(dtype: DType) -> list[str]:
    skip = INTEGER_ONLY if dtype.is_float else {"div"}
    return [op for op in BINARY_OPS if op not in skip and op != "pow"]


def check_binary(dtype: DType, pairs: Sequence[tuple[int | float, int | float]]) -> None:
    a, b = column(0, "a", dtype), column(0, "b", dtype)
    ops = binary_ops(dtype)
    expressions: list[ir.Expr] = [ir.Binary(op, a, b, type=dtype) for op in ops]
    expressions += [ir.Compare(op, a, b, type=i32) for op in COMPARISONS]
    expressions += [ir.Logical(op, a, b, type=i32) for op in ("and", "or")]
    outputs = evaluate(expressions, a=(dtype, [p[0] for p in pairs]), b=(dtype, [p[1] for p in pairs]))
    expected = [[semantics.binary(op, x, y, dtype) for x, y in pairs] for op in ops]
    expected += [[semantics.compare(op, x, y) for x, y in pairs] for op in COMPARISONS]
    expected += [[int(bool(x) and bool(y)) for x, y in pairs], [int(bool(x) or bool(y)) for x, y in pairs]]
    for op, got, wanted in zip((*ops, *COMPARISONS, "and", "or"), outputs, expected, strict=True):
        assert_same(got, wanted, pairs, f"{op} on {dtype}")


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_binary_operators(dtype: DType) -> None:
    values = samples(dtype)
    check_binary(dtype, list(itertools.product(values, values)))


@pytest.mark.parametrize("dtype", [i8, u8], ids=str)
def test_binary_operators_on_all_8_bit_pairs(dtype: DType) -> None:
    values = range(dtype.min, dtype.max + 1)
    check_binary(dtype, list(itertools.product(values, values)))


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_integer], ids=str)
def test_constant_right_operands(dtype: DType) -> None:
    values = samples(dtype)
    constants = [
        c for c in (0, 1, 2, 3, 4, 7, 10, 64, 100, -1, -2, -3, -8, dtype.min, dtype.max) if dtype.holds(c)
    ]
    cases = [(op, c) for op in ("floordiv", "mod", "shl", "shr") for c in constants]
    a = column(0, "a", dtype)
    outputs = evaluate([ir.Binary(op, a, const(c, dtype), type=dtype) for op, c in cases], a=(dtype, values))
    for (op, c), got in zip(cases, outputs, strict=True):
        assert_same(got, [semantics.binary(op, x, c, dtype) for x in values], values, f"{op} {c} on {dtype}")


@pytest.mark.parametrize("exponent", [i64, u64], ids=str)
@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_integer], ids=str)
def test_integer_powers(dtype: DType, exponent: DType) -> None:
    bases = [
        v for v in (0, 1, -1, 2, -2, 3, 7, -7, 10, dtype.min, dtype.max, dtype.max - 1) if dtype.holds(v)
    ]
    exponents = [
        e for e in (*range(12), 63, 64, 65, -1, -2, -63, exponent.min, exponent.max) if exponent.holds(e)
    ]
    pairs = list(itertools.product(bases, exponents))
    a, b = column(0, "a", dtype), column(0, "b", exponent)
    constants = [e for e in exponents if 0 <= e <= 65]
    powers = [ir.Binary("pow", a, b, type=dtype)]
    powers += [ir.Binary("pow", a, const(e, exponent), type=dtype) for e in constants]
    general, *fixed = evaluate(powers, a=(dtype, [p[0] for p in pairs]), b=(exponent, [p[1] for p in pairs]))
    assert_same(general, [semantics.binary("pow", x, y, dtype) for x, y in pairs], pairs, f"pow on {dtype}")
    for e, got in zip(constants, fixed, strict=True):
        assert_same(got, [dtype.wrap(x**e) for x, _ in pairs], pairs, f"pow {e} on {dtype}")


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_unary_operators(dtype: DType) -> None:
    values = samples(dtype)
    ops = [op for op in UNARY_OPS if dtype.is_integer or op != "invert"]
    a = column(0, "a", dtype)
    outputs = evaluate([ir.Unary(op, a, type=i32 if op == "not" else dtype) for op in ops], a=(dtype, values))
    for op, got in zip(ops, outputs, strict=True):
        assert_same(got, [semantics.unary(op, x, dtype) for x in values], values, f"{op} on {dtype}")


# --- conversions --------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_casts_and_bitcasts(source: DType) -> None:
    values = samples(source)
    if source.is_float:  # around the limits of each integer type
        for target in ALL_DTYPES:
            if target.is_integer:
                for limit in (float(target.min), float(target.max), float(target.max + 1)):
                    near = np.array([limit - 1, limit, limit + 1, np.nextafter(limit, 0)], source.numpy)
                    values += [float(v) for v in (*near, *(near / 2), -near[1])]
    else:  # ties when rounding to f32 and f64
        ties = [(1 << k) + d for k in (24, 25, 53, 54) for d in (1, 2, 3)]
        ties += [(1 << 63) + (1 << 39) + 1, (1 << 62) + (1 << 38) + 1]
        values += [v for v in ties if source.holds(v)]
    a = column(0, "a", source)
    same_width = [d for d in ALL_DTYPES if d.bits == source.bits]
    expressions = [ir.Cast(a, d, type=d) for d in ALL_DTYPES] + [ir.Bitcast(a, d, type=d) for d in same_width]
    outputs = evaluate(expressions, a=(source, values))
    for target, got in zip(ALL_DTYPES, outputs, strict=False):
        assert_same(got, [semantics.convert(v, target) for v in values], values, f"{source} to {target}")
    raw = np.array(values, source.numpy)
    for target, got in zip(same_width, outputs[len(ALL_DTYPES) :], strict=True):
        assert got.tobytes() == raw.tobytes(), f"bits of {source} as {target}"


# --- builtins -----------------------------------------------------------------------------------


def call(name: str, args: Sequence[ir.Expr], dtype: DType) -> ir.Call:
    return ir.Call(name, tuple(args), type=i32 if BUILTINS[name].rule in ("test", "truth", "bits") else dtype)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_exact_builtins(dtype: DType) -> None:
    names = EXACT_FLOAT_CALLS if dtype.is_float else INTEGER_CALLS
    values = samples(dtype)
    draw = random.Random(1)
    rows = [tuple(draw.choices(values, k=3)) for _ in range(2000)]
    rows += [(a, b, draw.choice(values)) for a, b in itertools.product(values[:40], values[:40])]
    rows += [(v, v, v) for v in values]
    columns = [column(0, name, dtype) for name in "abc"]
    arity = {name: max(BUILTINS[name].max_args or 3, BUILTINS[name].min_args) for name in names}
    outputs = evaluate(
        [call(name, columns[: arity[name]], dtype) for name in names],
        **{name: (dtype, [row[k] for row in rows]) for k, name in enumerate("abc")},
    )
    for name, got in zip(names, outputs, strict=True):
        expected = [semantics.call(name, row[: arity[name]], dtype) for row in rows]
        if name in ("min", "max") and dtype.is_float:  # the sign of a zero result is open
            got, expected = got + dtype.numpy.type(0), [e + 0.0 for e in expected]
        assert_same(got, expected, rows, f"{name} on {dtype}")


def test_not_a_number_is_true_and_unequal() -> None:
    nan = [math.nan, 0.0, -0.0, 5.0]
    a = column(0, "a", f64)
    chosen = ir.Select(a, const(1, i32), const(2, i32), type=i32)
    where = ir.Call("where", (a, const(1, i32), const(2, i32)), type=i32)
    unequal = ir.Compare("ne", a, a, type=i32)
    outputs = evaluate([chosen, where, unequal, ir.Unary("not", a, type=i32)], a=(f64, nan))
    assert [out.tolist() for out in outputs] == [[1, 2, 2, 1], [1, 2, 2, 1], [1, 0, 0, 0], [0, 1, 1, 0]]


def test_no_fast_math_and_honest_fast_math() -> None:
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5]
    for fastmath in (False, True):
        a = column(0, "a", f32)
        product = ir.Binary("mul", a, const(0.0, f32), type=f32)
        difference = ir.Binary("sub", a, a, type=f32)
        kernel = table(
            [
                call("isnan", [product], f32),
                call("isnan", [difference], f32),
                call("isinf", [a], f32),
                product,
                ir.Unary("neg", a, type=f32),
            ],
            [("a", f32)],
        )
        kernel.fastmath = fastmath
        outs = [np.zeros(6, np.int32) for _ in range(3)] + [np.zeros(6, np.float32) for _ in range(2)]
        data = {"a": np.array(values, np.float32)} | {f"out{k}": out for k, out in enumerate(outs)}
        Compiled(kernel)(data, [(0, 1, 6)])
        assert outs[0].tolist() == [1, 1, 1, 0, 0, 0]
        assert outs[1].tolist() == [1, 1, 1, 0, 0, 0]
        assert outs[2].tolist() == [0, 1, 1, 0, 0, 0]
        if not fastmath:
            assert_same(outs[3], [v * 0.0 for v in values], values, "times zero")
            assert_same(outs[4], [-v for v in values], values, "negated")
