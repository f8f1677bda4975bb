"""Kernels that the tests share, since some targets take half a second to compile one."""

from __future__ import annotations

from typing import Any

import tack

__all__ = ["affine", "count", "last", "middle"]


@tack.kernel
def affine(x: Any, y: Any, a: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] * a + b


@tack.kernel
def count(total: Any, n: Any) -> None:
    for _i in range(n):
        tack.atomic_add(total, 0, 1)


@tack.kernel
def last(x: Any) -> tack.i64:
    for _i in range(1):
        pass
    return x[x.shape[0] - 1]


@tack.kernel
def middle(tex: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = tex.sample(0.5, 0.5, 0.5)
