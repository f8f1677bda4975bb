"""Checks of what devices do around kernels: memory, order, atomics, workgroups, textures, the cache."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np

import tack
from tack.validate.checks import Context, check, expect, lacks, refused


@tack.kernel
def affine(x: Any, y: Any, a: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] * a + b


@check("memory")
def memory(context: Context) -> str:
    """Every element type there and back, fills, parts, and copies that overlap."""
    size = context.size(1_000_003, 1003)
    random = np.random.default_rng(5)
    for dtype in context.device.supported_dtypes:
        values = random.integers(0, 100, size).astype(dtype.numpy)
        x = tack.asarray(values, copy=True)
        expect(x.numpy(), values, f"{dtype} there and back")
        x[1:-1].fill(77)
        values[1:-1] = 77
        expect(x.numpy(), values, f"a fill of {dtype}")
        x[5], values[5] = 3, 3
        expect(x.numpy(4, 7), values[4:7], f"a part of {dtype}")
    x = tack.arange(size, dtype=tack.i32)
    tack.copyto(x[1:], x[:-1])
    expect(x.numpy(), [0, *range(size - 1)], "a copy that overlaps")
    expect(x.to("cpu").numpy(), x.numpy(), "a copy to the CPU")
    return f"{len(context.device.supported_dtypes)} element types"


@check("memory that runs out")
def out_of_memory(context: Context) -> str:
    x = tack.ones(100, tack.i32)
    with refused(MemoryError, "cannot allocate 16.00 TiB"):
        tack.empty(2**44, tack.u8)
    affine(x, x, 2, 1)
    expect(x.numpy(), [3] * 100, "a launch after the error")
    return ""


@check("order")
def order(context: Context) -> str:
    """Launches, copies and fills in program order; memory dropped while it is in use; waits."""
    size, rounds = context.size(1_000_000, 1000), context.size(200, 20)
    x, y = tack.zeros(size, tack.i32), tack.empty(size, tack.i32)
    total = 0
    for k in range(rounds):
        affine(x, y, 1, k)
        tack.copyto(x, y)
        total += k
        if k % 10 == 9:
            dropped = tack.full(size, 1000, tack.i32)
            affine(dropped, y, 1, -1000)
            del dropped
            other = tack.full(size, -5, tack.i32)  # likely where that was
            affine(x, x, 1, 1)
            total += 1
            del other
    expect(x.numpy(), np.full(size, total, np.int32), "a chain of launches")
    asyncio.run(tack.wait())
    return f"{rounds} launches"


@check("threads")
def threads(context: Context) -> str:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with context.device:
                x = tack.full(1000, number, tack.i32)
                for k in range(20):
                    y = tack.empty(1000, tack.i32)
                    affine(x, y, 1, k)
                    x = y
                expect(x.numpy(), np.full(1000, number + 190, np.int32), f"thread {number}")
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return "8"


@tack.kernel
def _count(x: Any, total: Any, tickets: Any, most: Any) -> None:
    for i in range(x.shape[0]):
        old = tack.atomic_add(total, 0, 1)
        tickets[i] = old
        tack.atomic_max(most, x[i] % 10, x[i])


@tack.kernel
def _add(x: Any, total: Any) -> None:
    for i in range(x.shape[0]):
        tack.atomic_add(total, x[i] % 3, 2)


@check("atomics")
def atomics(context: Context) -> str:
    size = context.size(300_000, 1000)
    values = np.random.default_rng(6).integers(0, 1_000_000, size).astype(np.int32)
    x, total, tickets = tack.asarray(values), tack.zeros(1, tack.i32), tack.zeros(size, tack.i32)
    most = tack.zeros(10, tack.i32)
    _count(x, total, tickets, most)
    expect(total.numpy(), [size], "a counter")
    expect(np.sort(tickets.numpy()), np.arange(size), "the old values of a counter")
    expect(most.numpy(), [values[values % 10 == k].max() for k in range(10)], "maxima")
    names = []
    for dtype in context.device.supported_dtypes:
        count = min(size, 100 if dtype.bits == 8 else size)
        sums = tack.zeros(3, dtype)
        if dtype not in context.device.supported_atomic_dtypes:
            with refused(TypeError, f"has no atomics on {dtype}"):
                _add(x[:count], sums)
            continue
        _add(x[:count], sums)
        right = [
            dtype.wrap(v) if dtype.is_integer else v for v in (2 * np.bincount(values[:count] % 3)).tolist()
        ]
        expect(sums.numpy(), np.array(right, dtype.numpy), f"sums of {dtype}")
        names.append(str(dtype))
    return " ".join(names)


@tack.kernel
def _groups(x: Any, turned: Any, sums: Any, most: Any) -> None:
    for i in range(x.shape[0]):
        group = tack.shared(256, tack.i32)
        lane = tack.thread_id()
        group[lane] = x[i]
        tack.barrier()
        turned[i] = group[255 - lane]
        total = tack.block_sum(x[i])
        top = tack.block_max(x[i])
        if lane == 0:
            sums[i // 256] = total
            most[i // 256] = top


@check("workgroups")
def workgroups(context: Context) -> str:
    """Shared arrays, barriers, block reductions."""
    groups = context.size(4000, 20)
    values = np.random.default_rng(7).integers(-1000, 1000, (groups, 256)).astype(np.int32)
    x = tack.asarray(values).ravel()
    turned, sums, most = (tack.zeros(n, tack.i32) for n in (256 * groups, groups, groups))
    if not context.device.supports_workgroups:
        raise lacks(RuntimeError, "runs no workgroups", lambda: _groups(x, turned, sums, most))
    _groups(x, turned, sums, most)
    expect(turned.numpy().reshape(groups, 256), values[:, ::-1], "a shared array")
    expect(sums.numpy(), values.sum(axis=1), "block_sum")
    expect(most.numpy(), values.max(axis=1), "block_max")
    return f"{groups} groups"


@check("reductions")
def reductions(context: Context) -> str:
    size = context.size(10_000_003, 10_003)
    random = np.random.default_rng(8)
    for dtype in (tack.i32, tack.u8, tack.i64, *context.floats):
        values = random.integers(0, 100, size).astype(dtype.numpy)  # whose sums are exact
        x = tack.asarray(values)
        exact = int(values.astype(np.int64).sum())
        if dtype is tack.f32:  # where partial sums may be f32
            expect(abs(x.sum() - exact) <= 1e-6 * exact, True, "sum of f32")
        else:
            expect(x.sum(), exact, f"sum of {dtype}")
        expect((x.min(), x.max()), (values.min(), values.max()), f"extremes of {dtype}")
        expect(abs(x.mean() - exact / size) < 1e-4, True, f"mean of {dtype}")
    return "on the device" if context.device.supports_device_reductions else "in NumPy, as declared"


@tack.kernel
def _samples(tex: Any, places: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = tex.sample(places[i, 0], places[i, 1], places[i, 2])


@check("textures")
def textures(context: Context) -> str:
    """Samples of a volume against interpolation in f64; texture units keep 8 bits of the weights."""
    random = np.random.default_rng(9)
    volume = random.random((5, 6, 7), np.float32)
    size = context.size(100_000, 300)
    places = random.uniform(-0.2, 1.2, (size, 3)).astype(np.float32)
    texture, out = tack.Texture3D(volume), tack.zeros(size)
    _samples(texture, tack.asarray(places), out)
    at = np.clip(places.astype(np.float64), 0, 1) * [6, 5, 4]
    low = np.minimum(at.astype(int), [5, 4, 3])
    part = at - low
    right = np.zeros(size)
    for corner in np.ndindex(2, 2, 2):
        weight = np.prod(np.where(np.array(corner), part, 1 - part), axis=1)
        x, y, z = (low + corner).T
        right += weight * volume[z, y, x]
    error = float(abs(out.numpy() - right).max())
    in_hardware = texture.storage._image is not None
    bound = 3 / 256 if in_hardware else 1e-5
    if not error <= bound:
        raise AssertionError(f"wrong by {error:.2g}, and {bound:.2g} is allowed")
    return f"{'in hardware' if in_hardware else 'by code'}, error {error:.1g}"


@check("graphs")
def graphs(context: Context) -> str:
    x, y = tack.arange(1000, dtype=tack.i32), tack.zeros(1000, tack.i32)
    if not context.device._backend.provides("graph"):
        with tack.capture():
            raise lacks(NotImplementedError, "cannot capture", lambda: affine(x, y, 2, 1))
    with tack.capture() as graph:
        affine(x, y, 2, 1)
        tack.copyto(x, y)
        y.fill(-1)
    expect(y.numpy(), [0] * 1000, "a graph that has not run")
    graph.launch()
    graph.launch()
    expect(x.numpy(), 4 * np.arange(1000) + 3, "a graph that ran twice")
    expect(y.numpy(), [-1] * 1000, "its fill")
    return ""


@check("kernels on disk", fresh=True)
def kernels_on_disk(context: Context) -> str:
    """A process finds what those before it have compiled, and that works."""
    x = tack.arange(1000, dtype=tack.i32)
    y = tack.zeros(1000, tack.i32)
    with tack.profile() as profile:
        affine(x, y, 2, 1)
    expect(y.numpy(), 2 * np.arange(1000) + 1, "a kernel from the disk")
    (entry,) = profile.kernels
    stores = context.device._backend.cache_target() is not None
    expect((entry.compiles, entry.cache_hits), (0, 1) if stores else (1, 0), "compiles and kernels found")
    return f"found in {1e3 * entry.cache_seconds:.1f} ms" if stores else "not kept, as declared"
