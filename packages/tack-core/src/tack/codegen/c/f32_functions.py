"""Functions that MSL or OpenCL C does not have, or has with a larger error than others, in C without f64.

All are for f32, within 2 ULP but for ``tanh`` (3) and ``erfc`` (4). What has to stay exact is done with
``fma`` and in sums of two terms, which a compiler that fuses multiplications with additions leaves right.
``as_f32``, ``as_u32`` and ``as_i32`` read the bits of a number as another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["FUNCTIONS", "spelled"]

# x * 2^n in two steps, so that the factors are in range.
_SCALED = """\
static inline f32 tack_scaled(f32 x, i32 n) {
    const i32 half_n = n / 2;
    return x * as_f32((u32)(half_n + 127) << 23) * as_f32((u32)(n - half_n + 127) << 23);
}
"""
_EXP = """\
static inline f32 tack_exp(f32 high, f32 low) {
    const f32 n = rint(high * 1.442695041f);
    const f32 r = fma(-n, -1.904654323e-09f, fma(-n, 0.693147182f, high)) + low;
    f32 p = fma(fma(r, 1.984126984e-4f, 1.388888889e-3f), r, 8.333333333e-3f);
    p = fma(fma(fma(p, r, 4.166666667e-2f), r, 1.666666667e-1f), r, 0.5f);
    return tack_scaled(1.0f + fma(r * r, p, r), (i32)n);
}
"""
_EXPM1 = """\
static inline f32 tack_expm1(f32 x) {
    if (!(x < 88.73f))
        return x > 0.0f ? as_f32(0x7f800000u) : x;
    if (x < -17.5f)
        return -1.0f;
    const f32 n = rint(x * 1.442695041f);
    const f32 r = fma(-n, -1.904654323e-09f, fma(-n, 0.693147182f, x));
    f32 p = fma(fma(r, 2.480158730e-5f, 1.984126984e-4f), r, 1.388888889e-3f);
    p = fma(fma(fma(fma(p, r, 8.333333333e-3f), r, 4.166666667e-2f), r, 1.666666667e-1f), r, 0.5f);
    p = fma(r * r, p, r);
    if (n == 0.0f)
        return p == 0.0f ? x : p;
    const f32 scale = as_f32((u32)((i32)n + 126) << 23);
    return 2.0f * fma(scale, p, scale - 0.5f);
}
"""
# With 1 + x = 2^e * (1 + f) and s = f / (2 + f): log(1 + f) = f - f^2 / 2 + s * (f^2 / 2 + a series in s^2).
_LOG1P = """\
static inline f32 tack_log1p(f32 x) {
    if (!(x > -1.0f && x < as_f32(0x7f800000u)))
        return x == -1.0f ? as_f32(0xff800000u) : x > 0.0f ? x : x != x ? x : as_f32(0x7fc00000u);
    f32 f = x, e = 0.0f, c = 0.0f;
    if (x < -0.29f || x > 0.41f) {
        const f32 u = 1.0f + x;
        c = (x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x)) / u;
        const u32 bits = as_u32(u) + 0x004afb0du;  // from the square root of 1/2 on
        e = (f32)((i32)(bits >> 23) - 127);
        f = as_f32((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    }
    if (f == 0.0f)
        return e == 0.0f ? x : e * 0.693147182f;
    const f32 s = f / (2.0f + f), z = s * s, half_square = 0.5f * f * f;
    f32 p = fma(fma(z, 0.181818182f, 0.222222222f), z, 0.285714286f);
    p = z * fma(fma(p, z, 0.4f), z, 0.666666667f);
    return e * 0.693147182f + (f - (half_square - (s * (half_square + p) + (e * -1.904654323e-09f + c))));
}
"""
# Halley's iteration twice, and Newton's with an exact remainder.
_CBRT = """\
static inline f32 tack_cbrt(f32 x) {
    f32 a = fabs(x), scale = 1.0f;
    if (!(a > 0.0f && a < as_f32(0x7f800000u)))
        return x;
    if (a < 0x1p-100f) {
        a *= 0x1p72f;
        scale = 0x1p-24f;
    } else if (a > 0x1p100f) {
        a *= 0x1p-72f;
        scale = 0x1p24f;
    }
    f32 t = as_f32(as_u32(a) / 3u + 709921077u);
    for (int k = 0; k < 2; ++k) {
        const f32 r = t * t * t;
        t = t * ((r + a + a) / (r + r + a));
    }
    const f32 square = t * t, rest = fma(square, t, -a) + fma(t, t, -square) * t;
    return copysign((t - rest / (3.0f * square)) * scale, x);
}
"""
_HYPOT = """\
static inline f32 tack_hypot(f32 x, f32 y) {
    if (isinf(x) || isinf(y))
        return as_f32(0x7f800000u);
    f32 a = fabs(x), b = fabs(y);
    if (a != a || b != b)
        return a + b;
    if (a < b) {
        const f32 swapped = a;
        a = b;
        b = swapped;
    }
    f32 scale = 1.0f, back = 1.0f;
    if (a > 0x1p60f) {
        scale = 0x1p-70f;
        back = 0x1p70f;
    } else if (a < 0x1p-60f) {
        scale = 0x1p120f;
        back = 0x1p-120f;
    }
    a *= scale;
    b *= scale;
    return sqrt(fma(a, a, b * b)) * back;
}
"""
# exp(-x^2), where the square is a sum of two terms, times a polynomial for (1 + 2 x) exp(x^2) erfc(x) in
# (x - 3) / (x + 3) from 0.5 to 10.6, fitted at Chebyshev points.
_ERFC = """\
static inline f32 tack_erfc_tail(f32 x) {
    const f32 q = (x - 3.0f) / (x + 3.0f);
    f32 p = fma(q, -1.836196898e-4f, -6.887706695e-4f);
    p = fma(fma(fma(p, q, 1.954886829e-3f), q, 2.504197415e-3f), q, -2.378977090e-2f);
    p = fma(fma(fma(p, q, 6.831113249e-2f), q, -1.192713752e-1f), q, 1.296449900e-1f);
    p = fma(fma(fma(p, q, -4.756239057e-2f), q, -1.356211007e-1f), q, 1.253008008f);
    const f32 square = x * x;
    return tack_exp(-square, -fma(x, x, -square)) * (p / (1.0f + 2.0f * x));
}
"""
# The Taylor series, for up to 1.
_ERF_NEAR = """\
static inline f32 tack_erf_near(f32 x) {
    const f32 z = x * x;
    f32 p = fma(z, 1.312253296e-8f, -1.450385222e-7f);
    p = fma(fma(fma(p, z, 1.458916900e-6f), z, -1.322751323e-5f), z, 1.068376068e-4f);
    p = fma(fma(fma(p, z, -7.575757576e-4f), z, 4.629629630e-3f), z, -2.380952381e-2f);
    p = z * fma(fma(p, z, 0.1f), z, -0.333333333f);
    const f32 high = 1.128379226f * x;
    return high + fma(high, p, fma(1.128379226f, x, -high) - 5.8635383e-08f * x);
}
"""
_ERF = """\
static inline f32 tack_erf(f32 x) {
    const f32 a = fabs(x);
    if (a != a)
        return a;
    return copysign(a < 0.9f ? tack_erf_near(a) : a < 4.0f ? 1.0f - tack_erfc_tail(a) : 1.0f, x);
}
"""
_ERFC_WHOLE = """\
static inline f32 tack_erfc(f32 x) {
    if (x < 0.5f)
        return x > -0.9f ? 1.0f - tack_erf_near(x) : x > -4.0f ? 2.0f - tack_erfc_tail(-x) : 2.0f;
    return x < 10.6f ? tack_erfc_tail(x) : x == x ? 0.0f : x;
}
"""
# log2 as a sum of two terms, times y, and 2 to that. With m = (1 + s) / (1 - s): log(m) = 2 s + a series.
_POW = """\
static inline f32 tack_pow(f32 x, f32 y) {
    const f32 infinity = as_f32(0x7f800000u);
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (x != x || y != y)
        return x + y;
    f32 a = fabs(x);
    if (fabs(y) == infinity)
        return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? infinity : 0.0f;
    const bool whole = trunc(y) == y, odd = whole && fabs(y) < 0x1p24f && ((i32)y & 1);
    const f32 sign = odd && as_i32(x) < 0 ? -1.0f : 1.0f;
    if (a == 0.0f || a == infinity)
        return sign * ((a > 0.0f) == (y > 0.0f) ? infinity : 0.0f);
    if (x < 0.0f && !whole)
        return as_f32(0x7fc00000u);
    f32 e = 0.0f;
    if (a < 0x1p-126f) {
        a *= 0x1p24f;
        e = -24.0f;
    }
    const u32 bits = as_u32(a) + 0x004afb0du;
    e += (f32)((i32)(bits >> 23) - 127);
    const f32 m = as_f32((bits & 0x007fffffu) + 0x3f3504f3u);
    const f32 f = m - 1.0f, g = m + 1.0f, s = f / g;
    const f32 s_low = (fma(-s, g, f) - s * (m - (g - 1.0f))) / g;
    const f32 q = s * s, q_low = fma(s, s, -q) + 2.0f * s * s_low;
    const f32 w = q * 0.666666687f;
    f32 rest = q * q * fma(fma(fma(q, 0.153846154f, 0.181818182f), q, 0.222222222f), q, 0.285714286f) * q;
    rest = fma(q * q, 0.4f, rest);
    const f32 w_low = fma(q, 0.666666687f, -w) - q * 1.986821501e-8f + q_low * 0.666666687f + rest;
    const f32 t = s * w, high = 2.0f * s + t;
    const f32 low = t - (high - 2.0f * s) + (fma(s, w, -t) + (2.0f * s_low + s * w_low + s_low * w));
    const f32 l = high * 1.442695022f;
    const f32 l_low = fma(high, 1.442695022f, -l) + high * 1.925963033e-8f + low * 1.442695022f;
    const f32 sum = e + l, sum_low = (e == 0.0f ? 0.0f : l - (sum - e)) + l_low;
    const f32 p = y * sum;
    if (!(fabs(p) < 250.0f))
        return sign * (p > 0.0f ? infinity : 0.0f);
    const f32 n = rint(p), r = (p - n) + (fma(y, sum, -p) + y * sum_low);
    f32 z = fma(fma(r, 1.525273380e-5f, 1.540353039e-4f), r, 1.333355815e-3f);
    z = fma(fma(fma(z, r, 9.618129108e-3f), r, 5.550410866e-2f), r, 2.402265070e-1f);
    return sign * tack_scaled(1.0f + fma(r * r, z, r * 0.6931471806f), (i32)n);
}
"""

# A polynomial for atan(t) / t in t^2, for up to 1, fitted at Chebyshev points.
_ATAN_NEAR = """\
static inline f32 tack_atan_near(f32 t) {
    const f32 z = t * t;
    f32 p = fma(fma(z, 1.488691894e-3f, -9.144629352e-3f), z, 2.630500123e-2f);
    p = fma(fma(fma(p, z, -4.896051437e-2f), z, 7.031914592e-2f), z, -8.931826800e-2f);
    p = fma(fma(fma(p, z, 0.1108826175f), z, -0.1428400427f), z, 0.1999994963f);
    return fma(t * z, fma(p, z, -0.3333333433f), t);
}
"""
_ATAN = """\
static inline f32 tack_atan(f32 x) {
    const f32 a = fabs(x), angle = tack_atan_near(a > 1.0f ? 1.0f / a : a);
    return copysign(a > 1.0f ? 1.570796371f - (angle + 4.371139e-8f) : angle, x);
}
"""
_ATAN2 = """\
static inline f32 tack_atan2(f32 y, f32 x) {
    if (x != x || y != y)
        return x + y;
    const f32 a = fabs(y), b = fabs(x), low = fmin(a, b), high = fmax(a, b);
    const f32 t = low != high ? low / high : high == 0.0f ? 0.0f : 1.0f;
    f32 angle = tack_atan_near(t);
    if (a > b)
        angle = 1.570796371f - (angle + 4.371139e-8f);
    if (as_i32(x) < 0)
        angle = 3.141592741f - (angle + 8.742278e-8f);
    return copysign(angle, y);
}
"""
_TANH = """\
static inline f32 tack_tanh(f32 x) {
    const f32 a = fabs(x);
    if (!(a < 10.0f))
        return a == a ? copysign(1.0f, x) : x;
    const f32 e = tack_expm1(a + a);
    return copysign(e / (e + 2.0f), x);
}
"""
# The bits of 2 / pi, 32 in a word, after a word of zeros.
_TWO_OVER_PI = """\
static inline u64 tack_two_over_pi(i32 word) {
    const u32 low = word < 2 ? (word < 1 ? 0u : 0xa2f9836eu) : word < 3 ? 0x4e441529u : 0xfc2757d1u;
    const u32 high = word < 6 ? (word < 5 ? 0xf534ddc0u : 0xdb629599u) : word < 7 ? 0x3c439041u : 0xfe5163abu;
    return word < 4 ? low : high;
}
"""
# The quarter turns in x are its 24 bits times 96 of 2 / pi, of which the lower 96 are kept: the first two of
# those count whole ones, the others say how far x is into one. That part is a sum of two terms, and so is r.
_TAN = """\
static inline f32 tack_tan(f32 x) {
    const f32 a = fabs(x);
    if (!(a < as_f32(0x7f800000u)))
        return x - x;
    f32 r = a, r_low = 0.0f;
    bool is_odd = false;
    if (a > 0.7853981f) {
        const u32 bits = as_u32(a);
        const u64 m = (bits & 0x007fffffu) | 0x00800000u;
        const i32 from = (i32)(bits >> 23) - 120, word = from >> 5, shift = from & 31;
        const u64 w1 = tack_two_over_pi(word + 1), w2 = tack_two_over_pi(word + 2);
        const u64 first = (tack_two_over_pi(word) << 32 | w1) << shift >> 32;
        const u64 second = (w1 << 32 | w2) << shift >> 32;
        const u64 third = (w2 << 32 | tack_two_over_pi(word + 3)) << shift >> 32;
        const u64 lower = m * second + (m * third >> 32);
        const u64 turns = (m * first << 32) + lower;
        const i64 part = (i64)(turns << 2) >> 1;
        is_odd = ((turns >> 62) + (part < 0 ? 1u : 0u)) & 1u;
        const f32 high = (f32)part, low = (f32)(part - (i64)high);
        r = high * 1.703060837e-19f;
        r_low = fma(high, 1.703060837e-19f, -r) + fma(high, -4.739198400e-27f, low * 1.70306084e-19f);
    }
    const f32 z = r * r;
    f32 p = fma(fma(fma(z, 3.843139857e-3f, 1.185321598e-3f), z, 9.962147102e-3f), z, 2.162112668e-2f);
    p = fma(fma(fma(p, z, 5.399446562e-2f), z, 0.1333323121f), z, 0.3333333433f);
    const f32 t = r + fma(r * z, p, fma(r_low, z, r_low));
    return copysign(1.0f, x) * (is_odd ? -1.0f / t : t);
}
"""

FUNCTIONS: Final = {
    "tack_scaled": _SCALED,
    "tack_exp": _EXP,
    "tack_expm1": _EXPM1,
    "tack_log1p": _LOG1P,
    "tack_cbrt": _CBRT,
    "tack_hypot": _HYPOT,
    "tack_erfc_tail": _ERFC,
    "tack_erf_near": _ERF_NEAR,
    "tack_erf": _ERF,
    "tack_erfc": _ERFC_WHOLE,
    "tack_pow": _POW,
    "tack_atan_near": _ATAN_NEAR,
    "tack_atan": _ATAN,
    "tack_atan2": _ATAN2,
    "tack_tanh": _TANH,
    "tack_two_over_pi": _TWO_OVER_PI,
    "tack_tan": _TAN,
}


def spelled(functions: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """The functions with some words replaced by a dialect's own."""
    found = {}
    for name, text in functions.items():
        for word, own in words.items():
            text = text.replace(word, own)
        found[name] = text
    return found
