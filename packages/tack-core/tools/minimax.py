"""Minimax polynomials for the math functions: ``python tools/minimax.py [NAME ...]``.

Prints what ``src/tack/codegen/llvm/vector_math/coefficients.py`` holds, with the largest error of each, by
the exchange algorithm of Remez (1934) at 60 digits. Needs mpmath.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[mpf], mpf]
_NEAR = mpf(10) ** -8


@dataclass(frozen=True)
class Problem:
    """``target`` on [low, high] by a polynomial; ``weight`` makes the error relative to the result."""

    target: Function
    weight: Function
    low: mpf
    high: mpf
    degree: int
    bits: int  # 24 or 53: what the coefficients are rounded to


def remez(problem: Problem) -> tuple[list[mpf], mpf]:
    """The coefficients, lowest power first, and the largest weighted error."""
    low, high, count = problem.low, problem.high, problem.degree + 2
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle - half * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]
    # Where the weight vanishes, at zero, a node would say nothing.
    nodes = [x if abs(x) > half / 50 else half / 50 for x in nodes]
    coefficients: list[mpf] = []
    for _ in range(12):
        # Equal errors of alternating sign at the nodes: a linear system for coefficients and error.
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, x in enumerate(nodes):
            weight = abs(problem.weight(x))
            for power in range(count - 1):
                matrix[row, power] = weight * x**power
            matrix[row, count - 1] = (-1) ** row
            right[row] = weight * problem.target(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(count - 1)]
        extrema = _extrema(problem, coefficients)
        if len(extrema) < count:
            break
        while len(extrema) > count:  # of two neighbours too many, the smaller error goes
            ends = (
                abs(_error(problem, coefficients, extrema[0])),
                abs(_error(problem, coefficients, extrema[-1])),
            )
            extrema.pop(0 if ends[0] < ends[1] else -1)
        nodes = extrema
        sizes = [abs(_error(problem, coefficients, x)) for x in nodes]
        if max(sizes) < min(sizes) * mpf("1.0001"):
            break
    grid = [low + (high - low) * (k + mpf("0.5")) / 2000 for k in range(2000)]
    return coefficients, max(abs(_error(problem, coefficients, x)) for x in grid)


def _error(problem: Problem, coefficients: list[mpf], x: mpf) -> mpf:
    return (mp.polyval(coefficients[::-1], x) - problem.target(x)) * abs(problem.weight(x))


def _extrema(problem: Problem, coefficients: list[mpf]) -> list[mpf]:
    """Where the error is largest between each two changes of its sign."""
    steps = 60 * (problem.degree + 2)
    low, high = problem.low, problem.high
    half = (high - low) / 2
    xs = [
        low + half - half * mp.cos(mp.pi * (k + mpf("0.01")) / (steps + mpf("0.02")))
        for k in range(steps + 1)
    ]
    found: list[tuple[mpf, mpf]] = []
    for x in xs:
        error = _error(problem, coefficients, x)
        if found and (error > 0) == (found[-1][1] > 0):
            if abs(error) > abs(found[-1][1]):
                found[-1] = x, error
        else:
            found.append((x, error))
    return [x for x, _ in found]


def _over(f: Function, series: Function) -> Function:
    """``f``, and its ``series`` near zero, where cancellation would spoil it."""
    return lambda x: series(x) if abs(x) < _NEAR else f(x)


def sine(degree: int, high: mpf, bits: int) -> Problem:
    """sin(r) = r + r z P(z), z = r^2."""

    def target(z: mpf) -> mpf:
        r = mp.sqrt(z)
        return (mp.sin(r) / r - 1) / z

    def weight(z: mpf) -> mpf:
        r = mp.sqrt(z)
        return z * r / mp.sin(r)

    def series(z: mpf) -> mpf:
        return -mpf(1) / 6 + z / 120 - z**2 / 5040

    return Problem(_over(target, series), weight, mpf(0), high**2, degree, bits)


def cosine(degree: int, high: mpf, bits: int) -> Problem:
    """cos(r) = 1 - z / 2 + z^2 P(z), z = r^2."""

    def target(z: mpf) -> mpf:
        return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2

    def series(z: mpf) -> mpf:
        return mpf(1) / 24 - z / 720 + z**2 / 40320

    return Problem(_over(target, series), lambda z: z**2, mpf(0), high**2, degree, bits)


def exponential(degree: int, bits: int) -> Problem:
    """exp(r) = 1 + r + r^2 P(r)."""
    high = mp.log(2) / 2 * mpf("1.0001")

    def series(r: mpf) -> mpf:
        return mpf(1) / 2 + r / 6 + r**2 / 24 + r**3 / 120

    return Problem(
        _over(lambda r: (mp.exp(r) - 1 - r) / r**2, series),
        lambda r: r**2 / mp.exp(r),
        -high,
        high,
        degree,
        bits,
    )


def expm1(degree: int, bits: int) -> Problem:
    """exp(r) - 1 = r + r^2 P(r), relative to itself."""
    e = exponential(degree, bits)
    return Problem(e.target, lambda r: r**2 / mp.expm1(r) if r else mpf(0), e.low, e.high, degree, bits)


def power2(degree: int, bits: int) -> Problem:
    """2^r = 1 + r P(r)."""
    ln2 = mp.log(2)
    half = mpf("0.50001")

    def series(r: mpf) -> mpf:
        return ln2 + ln2**2 * r / 2 + ln2**3 * r**2 / 6 + ln2**4 * r**3 / 24

    return Problem(
        _over(lambda r: (mpf(2) ** r - 1) / r, series), lambda r: r / mpf(2) ** r, -half, half, degree, bits
    )


def logarithm(degree: int, bits: int) -> Problem:
    """log(1 + f) = f - f^2 / 2 + f^3 P(f)."""

    def series(f: mpf) -> mpf:
        return mpf(1) / 3 - f / 4 + f**2 / 5 - f**3 / 6

    return Problem(
        _over(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, series),
        lambda f: f**3 / mp.log1p(f) if f else mpf(0),
        mp.sqrt(mpf("0.5")) - 1,
        mp.sqrt(2) - 1,
        degree,
        bits,
    )


def logarithm_quotient(degree: int, bits: int) -> Problem:
    """log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2."""

    def series(z: mpf) -> mpf:
        return mpf(2) / 3 + 2 * z / 5 + 2 * z**2 / 7 + 2 * z**3 / 9

    def target(z: mpf) -> mpf:
        s = mp.sqrt(z)
        return (2 * mp.atanh(s) - 2 * s) / (s * z)

    def weight(z: mpf) -> mpf:
        s = mp.sqrt(z)
        return s * z / (2 * mp.atanh(s)) if z else mpf(0)

    return Problem(_over(target, series), weight, mpf(0), (3 - 2 * mp.sqrt(2)) ** 2, degree, bits)


def logarithm_tail(degree: int, bits: int) -> Problem:
    """log((1 + s) / (1 - s)) / 2 = s + s z / 3 + s z^2 P(z), z = s^2."""
    high = (3 - 2 * mp.sqrt(2)) ** 2

    def series(z: mpf) -> mpf:
        return mpf(1) / 5 + z / 7 + z**2 / 9 + z**3 / 11

    def target(z: mpf) -> mpf:
        return (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1 - z / 3) / z**2

    return Problem(_over(target, series), lambda z: z**2, mpf(0), high * mpf("1.001"), degree, bits)


def error_function(degree: int, high: mpf, bits: int) -> Problem:
    """erf(x) = x + x P(z), z = x^2."""

    def series(z: mpf) -> mpf:
        return 2 / mp.sqrt(mp.pi) * (1 - z / 3 + z**2 / 10 - z**3 / 42) - 1

    def target(z: mpf) -> mpf:
        return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    def weight(z: mpf) -> mpf:
        return mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z else mp.sqrt(mp.pi) / 2

    return Problem(_over(target, series), weight, mpf(0), high**2, degree, bits)


def error_function_tail(degree: int, low: mpf, high: mpf, bits: int) -> Problem:
    """erf(x) = 1 - exp(-x - x P(x))."""
    return Problem(
        lambda x: -mp.log(mp.erfc(x)) / x - 1, lambda x: x * mp.erfc(x) / mp.erf(x), low, high, degree, bits
    )


def error_function_complement(degree: int, centre: int, high: mpf, bits: int) -> Problem:
    """erfc(x) = exp(-x^2) P(t) / (x + c), t = (x - c) / (x + c), from x = 1/2 on."""
    c = mpf(centre)

    def target(t: mpf) -> mpf:
        x = c * (1 + t) / (1 - t)
        return mp.erfc(x) * mp.exp(x * x) * (x + c)

    low = (mpf("0.5") - c) / (mpf("0.5") + c)
    return Problem(target, lambda t: 1 / target(t), low, (high - c) / (high + c), degree, bits)


def arcsine(degree: int, bits: int) -> Problem:
    """asin(x) = x + x z P(z), z = x^2, |x| <= 1/2."""

    def series(z: mpf) -> mpf:
        return mpf(1) / 6 + 3 * z / 40 + 15 * z**2 / 336 + 105 * z**3 / 3456

    def target(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return (mp.asin(x) - x) / (x * z)

    def weight(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return x * z / mp.asin(x) if z else mpf(0)

    return Problem(_over(target, series), weight, mpf(0), mpf("0.25"), degree, bits)


def arctangent(degree: int, high: mpf, bits: int) -> Problem:
    """atan(x) = x + x z P(z), z = x^2."""

    def series(z: mpf) -> mpf:
        return -mpf(1) / 3 + z / 5 - z**2 / 7 + z**3 / 9

    def target(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return (mp.atan(x) - x) / (x * z)

    def weight(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return x * z / mp.atan(x) if z else mpf(0)

    return Problem(_over(target, series), weight, mpf(0), high**2, degree, bits)


HALF_PI, QUARTER_PI, EIGHTH = mp.pi / 2, mp.pi / 4, mp.tan(mp.pi / 8)
PROBLEMS: dict[str, Problem] = {
    "SIN_F32": sine(3, HALF_PI * mpf("1.002"), 24),
    "SIN_F64": sine(7, HALF_PI * mpf("1.0000001"), 53),
    "TAN_SIN_F32": sine(2, QUARTER_PI * mpf("1.0001"), 24),
    "TAN_COS_F32": cosine(2, QUARTER_PI * mpf("1.0001"), 24),
    "TAN_SIN_F64": sine(5, QUARTER_PI * mpf("1.0000001"), 53),
    "TAN_COS_F64": cosine(5, QUARTER_PI * mpf("1.0000001"), 53),
    "EXP_F32": exponential(4, 24),
    "EXP_F64": exponential(9, 53),
    "EXPM1_F32": expm1(5, 24),
    "EXPM1_F64": expm1(10, 53),
    "EXP2_F32": power2(5, 24),
    "EXP2_F64": power2(11, 53),
    "LOG_F32": logarithm(8, 24),
    "LOG_F64": logarithm_quotient(6, 53),
    "LOG_TAIL_F64": logarithm_tail(6, 53),
    "ERF_F32": error_function(6, mpf(1), 24),
    "ERF_F64": error_function(12, mpf(1), 53),
    "ERF_TAIL_F32": error_function_tail(6, mpf(1), mpf(4), 24),
    "ERF_TAIL_F64": error_function_tail(22, mpf(1), mpf("6.1"), 53),
    "ERFC_F32": error_function_complement(9, 2, mpf("10.1"), 24),
    "ERFC_F64": error_function_complement(20, 4, mpf("27.3"), 53),
    "ASIN_F32": arcsine(4, 24),
    "ASIN_F64": arcsine(12, 53),
    "ATAN_F32": arctangent(4, EIGHTH * mpf("1.0001"), 24),
    "ATAN_F64": arctangent(10, EIGHTH * mpf("1.0000001"), 53),
}


# Numbers as sums of floats, each the rest of the number rounded to so many bits.
SUMS: dict[str, tuple[mpf, tuple[int, ...]]] = {
    f"{name}_F{bits}": (value, (digits, digits))
    for name, value in (
        ("LN2", mp.log(2)),
        ("LOG2E", 1 / mp.log(2)),
        ("LOG10E", 1 / mp.log(10)),
        ("LOG10_2", mp.log(2) / mp.log(10)),
        ("HALF_PI", mp.pi / 2),
    )
    for bits, digits in ((32, 24), (64, 53))
} | {
    # The second part is short: see trigonometry.py.
    "PI_PARTS_F32": (mp.pi, (24, 9, 24, 24)),
    "PI_PARTS_F64": (mp.pi, (53, 28, 53, 53)),
}


def parts(value: mpf, bits: tuple[int, ...]) -> list[float]:
    found: list[float] = []
    for count in bits:
        found.append(rounded(value, count))
        value -= found[-1]
    return found


def rounded(value: mpf, bits: int) -> float:
    """``value`` to ``bits`` significant bits, as a Python float."""
    mantissa, exponent = mp.frexp(value)
    return float(mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), int(exponent) - bits))


def main() -> None:
    for name, (value, bits) in SUMS.items():
        print(f"{name} = ({', '.join(map(repr, parts(value, bits)))})")
    for name in sys.argv[1:] or PROBLEMS:
        problem = PROBLEMS[name]
        coefficients, error = remez(problem)
        print(f"# largest relative error 2^{mp.nstr(mp.log(error, 2), 4)}")
        print(f"{name} = (")
        for c in coefficients:
            print(f"    {rounded(c, problem.bits)!r},")
        print(")", flush=True)


if __name__ == "__main__":
    main()
