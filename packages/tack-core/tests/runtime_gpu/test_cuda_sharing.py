"""`Array.share`: memory by a file descriptor, as another process, or Vulkan, imports it."""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime.cuda.driver import DRIVER


@tack.kernel
def double(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] * 2


def imported(handle: int, size: int, count: int) -> tuple[np.ndarray, Any]:
    """The first ``count`` u32 of shared memory, and what lets go of it. They are doubled after that."""
    cu, check = DRIVER.module, DRIVER.check
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    memory = check(cu.cuMemImportFromShareableHandle(handle, kind))
    address = check(cu.cuMemAddressReserve(size, 0, 0, 0))
    check(cu.cuMemMap(address, size, 0, memory, 0))
    access = cu.CUmemAccessDesc()
    access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    check(cu.cuMemSetAccess(address, size, [access], 1))
    view = tack.array_from_ptr(int(address), tack.u32, count, writable=True)
    found = view.numpy()
    double(view)

    def release() -> None:
        check(cu.cuMemUnmap(address, size))
        check(cu.cuMemAddressFree(address, size))
        check(cu.cuMemRelease(memory))

    return found, release


def test_what_it_says(backend: Any) -> None:
    array = tack.empty(1000, tack.f32, shareable=True)
    shared = array.share()
    try:
        assert isinstance(shared, tack.SharedMemory)
        assert shared.handle_type == "posix_fd"
        assert shared.size >= array.nbytes
        assert shared.device_uuid == backend.features.uuid
        os.fstat(shared.handle)
    finally:
        os.close(shared.handle)


def test_both_sides_see_what_the_other_writes() -> None:
    values = np.arange(100_000, dtype=np.uint32)
    array = tack.empty(values.shape, tack.u32, shareable=True)
    tack.copyto(array, values)
    double(array)
    shared = array.share()
    found, release = imported(shared.handle, shared.size, values.size)
    os.close(shared.handle)
    np.testing.assert_array_equal(found, values * 2)
    np.testing.assert_array_equal(array.numpy(), values * 4)
    array.fill(7)
    assert array.sum() == 7 * values.size
    release()


def test_launches_on_it_are_done_when_they_return(dispatch: str, emulated: Driver) -> None:
    array = tack.empty(1000, tack.u32, shareable=True)
    array.fill(3)
    waits = emulated.calls("cuStreamSynchronize")
    double(array)
    assert emulated.calls("cuStreamSynchronize") == waits
    os.close(array.share().handle)
    waits = emulated.calls("cuStreamSynchronize")
    for _ in range(3):
        double(array)
    assert emulated.calls("cuStreamSynchronize") == waits + 3
    assert array.numpy().tolist() == [48] * 1000


def _other_process(target: str, pipe: Connection, size: int, count: int) -> None:
    from on_target import device_of, emulate

    emulate(target)
    tack.set_default_device(device_of(target))
    handle = pipe.recv().detach()
    found, release = imported(handle, size, count)
    tack.sync()
    release()
    pipe.send(int(found.sum(dtype=np.uint64)))


def test_another_process(request: pytest.FixtureRequest) -> None:
    context = multiprocessing.get_context("spawn")
    array = tack.empty(5000, tack.u32, shareable=True)
    array.fill(21)
    shared = array.share()
    here, there = context.Pipe()
    arguments = (request.config.getoption("--target"), there, shared.size, 5000)
    process = context.Process(target=_other_process, args=arguments)
    process.start()
    here.send(DupFd(shared.handle))
    assert here.recv() == 21 * 5000
    process.join()
    os.close(shared.handle)
    assert array.numpy().tolist() == [42] * 5000


def test_of_an_array_of_the_pool() -> None:
    with pytest.raises(RuntimeError, match=r"tack\.empty\(shape, dtype, shareable=True\)"):
        tack.zeros(10).share()


def test_of_a_view() -> None:
    array = tack.empty((4, 8), tack.f32, shareable=True)
    os.close(array.reshape(32).share().handle)
    os.close(array[:2].share().handle)
    with pytest.raises(ValueError, match=r"begins 32 bytes after it"):
        array[1:].share()


def test_of_no_elements() -> None:
    shared = tack.empty(0, tack.f32, shareable=True).share()
    assert shared.size > 0
    os.close(shared.handle)


def test_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match=r"CPU has no memory that can be shared"):
        tack.empty(3, device="cpu", shareable=True)
    with pytest.raises(RuntimeError, match=r"arrays on CPU cannot be shared"):
        tack.zeros(3, device="cpu").share()


def test_it_goes_after_the_launches_that_use_it(emulated: Driver) -> None:
    tack.sync()
    gc.collect()
    before = emulated.alive()
    array = tack.empty(1000, tack.u32, shareable=True)
    array.fill(1)
    double(array)
    with emulated.held():
        double(array)
        del array
        gc.collect()
        assert emulated.live("physicals") == before["physicals"] + 1
    tack.sync()
    gc.collect()
    tack.sync()
    assert emulated.live("physicals") == before["physicals"]
    assert emulated.live("reserved") == before["reserved"]
    assert emulated.live("memory") == before["memory"]


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"])
def test_nothing_is_left_of_one_that_fails(call: str, emulated: Driver) -> None:
    tack.empty(10, tack.u32, shareable=True)
    tack.sync()
    gc.collect()
    tack.sync()
    before = emulated.alive()
    emulated.fail(call, 801)
    with pytest.raises(RuntimeError, match=r"cannot allocate memory"):
        tack.empty(1000, tack.u32, shareable=True)
    gc.collect()
    tack.sync()
    assert emulated.alive() == before


def test_memory_ends(emulated: Driver) -> None:
    emulated.limit(64 << 20)
    kept = tack.empty(60 << 20, tack.u8)
    del kept
    gc.collect()
    array = tack.empty(40 << 20, tack.u8, shareable=True)  # what the pool keeps is given back for it
    with pytest.raises(MemoryError, match=r"cannot allocate 40\.00 MiB"):
        tack.empty(40 << 20, tack.u8, shareable=True)
    array.fill(1)
    assert array.sum() == 40 << 20
