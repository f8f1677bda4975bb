"""Valid kernels that the mutations start from, all with the same parameters."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

PARAMETERS = "x, y, k, u, n, s"


def arguments() -> tuple[Any, ...]:
    """``x`` f64 1-d, ``y`` f32 2-d, ``k`` i32 1-d, ``u`` u64 1-d, an int and a float."""
    return (
        np.ones(16),
        np.ones((4, 4), np.float32),
        np.arange(16, dtype=np.int32),
        np.arange(16, dtype=np.uint64),
        7,
        0.5,
    )


def odd_arguments(rng: random.Random) -> tuple[Any, ...]:
    """Arguments of other types and shapes than the kernels were written for."""
    pool: list[Any] = [np.ones(16, dtype) for dtype in "bBhHiIlLfd"]
    pool += [np.ones((4, 4)), np.ones((2, 2, 4), np.uint8), np.ones(()), np.ones(0, np.int8)]
    pool += [3, -1, 2**40, 2**63, 0, True, 0.5, -0.0, float("nan")]
    return tuple(rng.choice(pool) if rng.random() < 0.3 else argument for argument in arguments())


HELPERS = """
C = tack.constant(3)
W = tack.constant(0.25)
T = tack.constant((1, 2, 3, 5, 8))

@tack.func
def square(a):
    return a * a

@tack.func
def pick(a, b):
    if a > b:
        return a
    for q in range(3):
        if q * a > b:
            return b + q
    return 0

@tack.func
def pair(a):
    return a, a + 1

@tack.func
def put(array, i, v):
    array[i] = v
"""

BODIES = [
    """
    for i in range(n):
        x[i] = s * x[i] + y[i, 0]
""",
    """
    for i in range(1, x.shape[0] - 1):
        x[i] = (x[i - 1] + x[i] + x[i + 1]) / 3
""",
    """
    for i, j in tack.ndindex(y.shape[0], y.shape[1]):
        if i == j:
            continue
        y[i, j] = y[j, i] * 0.5 + sin(s)
""",
    """
    for i in range(len(k)):
        total = 0
        for m in range(i):
            if m % 3 == 0:
                continue
            if m > n:
                break
            total += k[m] * m
        k[i] = total // (i + 1)
""",
    """
    for i in range(16):
        z = 0.0
        count = 0
        while z * z < 4.0 and count < 50:
            z = z * z + s
            count += 1
        k[i] = count if count < 50 else -1
""",
    """
    for i in range(n):
        tack.atomic_add(k, i % 4, 1)
        old = tack.atomic_max(x, 0, x[i] * s)
        if old > 3 and k[i] != 2 or not u[i]:
            x[i] = old
""",
    """
    for i in range(n):
        a = tack.local_array(8, tack.f32)
        for m in range(8):
            a[m] = y[m % 4, m // 4]
        for m in range(7):
            a[m + 1], a[m] = max(a[m], a[m + 1]), min(a[m], a[m + 1])
        x[i] = a[0]
""",
    """
    for i in range(n):
        x[i] = square(x[i]) + pick(i, n)
        a, b = pair(k[i])
        put(k, i, a + b * C)
""",
    """
    scale = s * 2
    first = x[0]
    for i in range(n * 2 - 3):
        v = scale
        if i > first:
            v = W
        elif i < 2:
            v = -v
        else:
            v += T[i % 5]
        x[i] = v
""",
    """
    for i in range(0, n, 2):
        u[i] = u[i] >> 3 ^ u[i] << 5
        u[i] += 12345 * (u[i] & 255)
        k[i] = popcount(u[i]) + clz(k[i]) - ~k[i]
""",
    """
    for i in range(n):
        y[i, 1] = sqrt(abs(x[i])) if 0 < x[i] <= 2 < s else exp(-s) * tack.f32(k[i])
        x[i] = atan2(x[i], 1.0) ** 2 - x[i] % 1.5
""",
    """
    for i in range(n):
        k[i] = int(x[i]) + tack.i8(300) * bool(s)
        x[i] = float(k[i]) / 3 + tack.f64(u[i])
""",
    """
    for i in range(n):
        print("i", i, x[i])
        if x[i] != x[i]:
            print("nan", k[i], u[i])
""",
    """
    for a, b, c in tack.ndindex((1, 3), n, 2):
        for p, q in tack.ndindex(2, (0, b)):
            k[(a * 5 + b + c + p + q) % 16] += 1
""",
    """
    m = min(n, len(x), 12)
    if m > 3:
        m -= 1
    while m > 9:
        m -= 2
    for i in range(max(m, 1)):
        n = n + i
        k[i] = n
""",
    """
    for i in range(n):
        v = where(isnan(x[i]), 0.0, x[i])
        w = fma(v, s, 1) + hypot(v, 3) + round(v) + math.pi
        x[i] = copysign(w, -v) if isfinite(w) else math.inf
""",
]

TAILS = ["", "    return k[0] + n\n"]


def sources() -> list[str]:
    """Each kernel's whole text."""
    found = []
    for number, body in enumerate(BODIES):
        tail = TAILS[number % 2]
        result = " -> int" if tail else ""
        head = f"\n@tack.kernel\ndef kernel({PARAMETERS}){result}:"
        found.append(HELPERS + head + body.rstrip("\n") + "\n" + tail)
    return found
