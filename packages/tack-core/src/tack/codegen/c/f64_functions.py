"""Functions of f64 whose error OpenCL C allows to be larger than others'. These are within 2 ULP, ``tanh`` 3,
``erfc`` 4.

They are made as those of `f32_functions`. ``as_f64``, ``as_u64`` and ``as_i64`` read the bits of a number as
another type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

__all__ = ["FUNCTIONS"]


def _polynomial(variable: str, coefficients: Iterable[float]) -> str:
    """Statements that leave its value in ``p``. The constant is the last coefficient."""
    first, *others = (repr(c) for c in coefficients)
    return "\n".join([f"    f64 p = {first};", *(f"    p = fma(p, {variable}, {c});" for c in others)])


_SCALED = """\
static inline f64 tack_scaled_f64(f64 x, i64 n) {
    const i64 half_n = n / 2;
    return x * as_f64((u64)(half_n + 1023) << 52) * as_f64((u64)(n - half_n + 1023) << 52);
}
"""
_EXP = f"""\
static inline f64 tack_exp_f64(f64 high, f64 low) {{
    const f64 n = rint(high * 1.4426950408889634);
    const f64 r = fma(-n, 2.3190468138462996e-17, fma(-n, 0.6931471805599453, high)) + low;
{_polynomial("r", (1 / math.factorial(k) for k in range(14, 1, -1)))}
    return tack_scaled_f64(1.0 + fma(r * r, p, r), (i64)n);
}}
"""
_ERFC_TAIL = f"""\
static inline f64 tack_erfc_tail_f64(f64 x) {{
    const f64 q = (x - 3.0) / (x + 3.0), square = x * x;
{
    _polynomial(
        "q",
        (
            *(1.0090502104547526e-08, 7.006510407608916e-08, -8.781246903522438e-08, -5.812765301135907e-07),
            *(3.0678300789647283e-07, 3.449724784430826e-06, -7.033980014737823e-07, -2.009146041281634e-05),
            *(4.939557196615993e-06, 0.00012509699939154535, -0.00010515758245099437, -0.0007798318832638273),
            *(0.0018886900536468183, 0.0025293917765741494, -0.02377051489425304, 0.0683080273462362),
            *(-0.11927366341630258, 0.12964515870269996, -0.04756229435343502, -0.13562110612458067),
            1.2530080582697296,
        ),
    )
}
    return tack_exp_f64(-square, -fma(x, x, -square)) * (p / (1.0 + 2.0 * x));
}}
"""
_ERF_NEAR = f"""\
static inline f64 tack_erf_near_f64(f64 x) {{
    const f64 z = x * x, high = 1.1283791670955126 * x;
{
    _polynomial(
        "z",
        (
            *(-4.1847384019765744e-12, 7.960358987205793e-11, -1.084029586186444e-09, 1.3118020704909402e-08),
            *(-1.4503585870811855e-07, 1.4589158170618844e-06, -1.3227512925486072e-05),
            *(0.00010683760678109398, -0.000757575757568964, 0.004629629629629144, -0.02380952380952379),
            *(0.1, -0.3333333333333333),
        ),
    )
}
    return high + fma(high, p * z, fma(1.1283791670955126, x, -high) + 1.533545961316588e-17 * x);
}}
"""
_ERF = """\
static inline f64 tack_erf_f64(f64 x) {
    const f64 a = fabs(x);
    if (a != a)
        return a;
    return copysign(a < 0.9 ? tack_erf_near_f64(a) : a < 6.0 ? 1.0 - tack_erfc_tail_f64(a) : 1.0, x);
}
"""
_ERFC = """\
static inline f64 tack_erfc_f64(f64 x) {
    if (x < 0.5)
        return x > -0.9 ? 1.0 - tack_erf_near_f64(x) : x > -6.0 ? 2.0 - tack_erfc_tail_f64(-x) : 2.0;
    return x < 27.3 ? tack_erfc_tail_f64(x) : x == x ? 0.0 : x;
}
"""
_POW = f"""\
static inline f64 tack_pow_log_f64(f64 q) {{
{_polynomial("q", (2 / (2 * k + 1) for k in range(12, 2, -1)))}
    return fma(q * q, 0.4, q * q * q * p);
}}
static inline f64 tack_pow_exp_f64(f64 r) {{
{_polynomial("r", (math.log(2) ** k / math.factorial(k) for k in range(14, 1, -1)))}
    return 1.0 + fma(r * r, p, r * 0.6931471805599453);
}}
static inline f64 tack_pow_f64(f64 x, f64 y) {{
    const f64 infinity = as_f64(0x7ff0000000000000ul);
    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return x + y;
    f64 a = fabs(x);
    if (fabs(y) == infinity)
        return a == 1.0 ? 1.0 : (a > 1.0) == (y > 0.0) ? infinity : 0.0;
    const bool whole = trunc(y) == y, odd = whole && fabs(y) < 0x1p53 && ((i64)y & 1);
    const f64 sign = odd && as_i64(x) < 0 ? -1.0 : 1.0;
    if (a == 0.0 || a == infinity)
        return sign * ((a > 0.0) == (y > 0.0) ? infinity : 0.0);
    if (x < 0.0 && !whole)
        return as_f64(0x7ff8000000000000ul);
    f64 e = 0.0;
    if (a < 0x1p-1022) {{
        a *= 0x1p54;
        e = -54.0;
    }}
    const u64 bits = as_u64(a) + 0x00095f619980c433ul;  // from the square root of 1/2 on
    e += (f64)((i64)(bits >> 52) - 1023);
    const f64 m = as_f64((bits & 0x000ffffffffffffful) + 0x3fe6a09e667f3bcdul);
    const f64 f = m - 1.0, g = m + 1.0, s = f / g;
    const f64 s_low = (fma(-s, g, f) - s * (m - (g - 1.0))) / g;
    const f64 q = s * s, q_low = fma(s, s, -q) + 2.0 * s * s_low;
    const f64 c = 0.6666666666666666, w = q * c;
    const f64 w_low = fma(q, c, -w) + q * 3.700743415417188e-17 + q_low * c + tack_pow_log_f64(q);
    const f64 t = s * w, high = 2.0 * s + t;
    const f64 low = t - (high - 2.0 * s) + (fma(s, w, -t) + (2.0 * s_low + s * w_low + s_low * w));
    const f64 log2_e = 1.4426950408889634, l = high * log2_e;
    const f64 l_low = fma(high, log2_e, -l) + high * 2.0355273740931033e-17 + low * log2_e;
    const f64 sum = e + l, sum_low = (e == 0.0 ? 0.0 : l - (sum - e)) + l_low;
    const f64 p = y * sum;
    if (!(fabs(p) < 2000.0))
        return sign * (p > 0.0 ? infinity : 0.0);
    const f64 n = rint(p), r = (p - n) + (fma(y, sum, -p) + y * sum_low);
    return sign * tack_scaled_f64(tack_pow_exp_f64(r), (i64)n);
}}
"""
_ATAN_NEAR = f"""\
static inline f64 tack_atan_near_f64(f64 t) {{
    const f64 z = t * t;
{
    _polynomial(
        "z",
        (
            *(-1.1832505417555692e-05, 0.0001368724853148122, -0.0007518472526973822, 0.002622977891906089),
            *(-0.006575683344151699, 0.012756172907694298, -0.020238706986393514, 0.027567942297344678),
            *(-0.033750132001619734, 0.03872640214042632, -0.04308119655330471, 0.04752086773576656),
            *(-0.05261265735709454, 0.05882074956371294, -0.06666636435777692, 0.07692305354678655),
            *(-0.09090908969557403, 0.11111111107234799, -0.14285714285648404, 0.19999999999999554),
            -0.3333333333333333,
        ),
    )
}
    return fma(t * z, p, t);
}}
"""
_ATAN = """\
static inline f64 tack_atan_f64(f64 x) {
    const f64 a = fabs(x), angle = tack_atan_near_f64(a > 1.0 ? 1.0 / a : a);
    return copysign(a > 1.0 ? 1.5707963267948966 - (angle - 6.123233995736766e-17) : angle, x);
}
"""
_ATAN2 = """\
static inline f64 tack_atan2_f64(f64 y, f64 x) {
    if (x != x || y != y)
        return x + y;
    const f64 a = fabs(y), b = fabs(x), low = fmin(a, b), high = fmax(a, b);
    const f64 t = low != high ? low / high : high == 0.0 ? 0.0 : 1.0;
    f64 angle = tack_atan_near_f64(t);
    if (a > b)
        angle = 1.5707963267948966 - (angle - 6.123233995736766e-17);
    if (as_i64(x) < 0)
        angle = 3.141592653589793 - (angle - 1.2246467991473532e-16);
    return copysign(angle, y);
}
"""
# With e = exp(2 |x|) - 1: e / (e + 2).
_TANH = f"""\
static inline f64 tack_tanh_f64(f64 x) {{
    const f64 a = fabs(x);
    if (!(a < 20.0))
        return a == a ? copysign(1.0, x) : x;
    const f64 n = rint(a * 2.8853900817779268);
    const f64 r = fma(-n, 2.3190468138462996e-17, fma(-n, 0.6931471805599453, a + a));
{_polynomial("r", (1 / math.factorial(k) for k in range(14, 1, -1)))}
    p = fma(r * r, p, r);
    const f64 scale = as_f64((u64)((i64)n + 1023) << 52), e = fma(scale, p, scale - 1.0);
    return copysign(e / (e + 2.0), x);
}}
"""

FUNCTIONS: Final = {
    "tack_scaled_f64": _SCALED,
    "tack_exp_f64": _EXP,
    "tack_erfc_tail_f64": _ERFC_TAIL,
    "tack_erf_near_f64": _ERF_NEAR,
    "tack_erf_f64": _ERF,
    "tack_erfc_f64": _ERFC,
    "tack_pow_f64": _POW,
    "tack_atan_near_f64": _ATAN_NEAR,
    "tack_atan_f64": _ATAN,
    "tack_atan2_f64": _ATAN2,
    "tack_tanh_f64": _TANH,
}
