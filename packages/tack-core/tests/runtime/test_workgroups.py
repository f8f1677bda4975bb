"""What backends check of kernels that use workgroups, on one that has none and one that has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tack
from tack.dtypes import ALL_DTYPES, DType
from tack.runtime import dispatch
from tack.runtime.backend import Backend, Buffer
from tack.runtime.cpu.buffer import CpuBuffer, allocate
from tack.runtime.device import as_device
from tack.runtime.variants import resolve_variant
from tack.runtime.workgroups import check_workgroup_launch


class PlainBackend(Backend):
    """A device on host memory that compiles kernels to nothing, and has no workgroups."""

    name = "metal"
    display_name = "Plain"
    supported_dtypes = ALL_DTYPES
    supported_atomic_dtypes = ALL_DTYPES
    wraps_host_memory = True

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        self.built = 0
        self.launched: list[int] = []

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return allocate(dtype.itemsize * int(np.prod(shape)))

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        return CpuBuffer(ptr.ctypes.data, ptr.nbytes, owned=False, owner=(ptr, owner))

    def execute(self, kernel: Any, args: tuple[Any, ...]) -> Any:
        variant, accepted = resolve_variant(self, kernel, args, self.build)
        count = int(np.prod([n for _, _, n in variant.launch_range(accepted)], dtype=object))
        check_workgroup_launch(kernel, variant, count)
        self.launched.append(count)

    def build(self, kernel: Any, disjoint: bool) -> str:
        self.built += 1
        return "payload"

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        return "text"


class GroupBackend(PlainBackend):
    """The same with workgroups."""

    supports_workgroups = True


@pytest.fixture
def plain() -> Iterator[PlainBackend]:
    backend = PlainBackend()
    with as_device(backend):
        yield backend


@pytest.fixture
def grouped() -> Iterator[GroupBackend]:
    backend = GroupBackend()
    with as_device(backend):
        yield backend


@tack.kernel
def collective(x, n):
    for i in range(n):
        s = tack.shared(256, tack.f32)
        s[tack.thread_id()] = x[i]
        tack.barrier()
        x[i] = s[0] + tack.block_sum(x[i]) + tack.block_max(1)


@tack.func
def number():
    return tack.thread_id()


@tack.kernel
def lanes(x, n):
    for i in range(n):
        x[i] = number()


@tack.kernel
def ordinary(x, n):
    for i in range(n):
        own = tack.local_array(4, tack.f32)
        own[0] = x[i]
        x[i] = own[0]


X = np.zeros(512, np.float32)
USED = {
    collective: "kernel 'collective' uses "
    "tack.shared, tack.thread_id, tack.barrier, tack.block_sum, tack.block_max",
    lanes: "kernel 'lanes' uses tack.thread_id",
}


@pytest.mark.parametrize("kernel", USED, ids=lambda k: k.__name__)
def test_a_device_without_workgroups_refuses_kernels_by_their_structure(
    plain: PlainBackend, kernel: tack.Kernel
) -> None:
    for count in (512, 3, 0, 512):  # whatever the launch would be
        with pytest.raises(RuntimeError) as caught:
            kernel(X, count)
        assert type(caught.value) is RuntimeError
        text = str(caught.value)
        assert text.startswith(USED[kernel] + ", and Plain runs no workgroups")
        assert "tack.local_array" in text
    for mode in ("ir", "source"):
        with pytest.raises(NotImplementedError) as refused:
            tack.inspect(kernel, X, 512, mode=mode)
        assert type(refused.value) is NotImplementedError
        assert str(refused.value) == text
    assert plain.built == 0
    assert not plain.launched


def test_it_runs_the_others(plain: PlainBackend) -> None:
    ordinary(X, 3)
    assert plain.launched == [3]
    assert tack.inspect(ordinary, X, 3) == "text"


def test_a_device_with_workgroups_checks_every_launch(grouped: GroupBackend) -> None:
    for count in (512, 256, 0):
        collective(X, count)
    for count in (1, 511, 257):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"kernel 'collective': {count} iterations.*multiple of 256"):
                collective(X, count)
    lanes(X, 100)
    ordinary(X, 7)
    assert grouped.launched == [512, 256, 0, 100, 7]
    assert grouped.built == 3


def test_variants_know_whether_they_need_whole_workgroups(grouped: GroupBackend) -> None:
    needs = {
        k: resolve_variant(grouped, k, (X, 256), grouped.build)[0].requires_full_workgroups
        for k in (collective, lanes, ordinary)
    }
    assert needs == {collective: True, lanes: False, ordinary: False}


def test_the_cpu_has_workgroups() -> None:
    assert tack.device("cpu").supports_workgroups
    x = np.arange(512, dtype=np.float32)
    expected = x.reshape(2, 256).sum(1).repeat(256) + np.repeat(x[::256], 256) + 1
    collective(x, 512)
    assert x.tolist() == expected.tolist()
    for fresh in (True, False):  # after a good launch, and with nothing compiled
        if not fresh:
            dispatch.device("cpu")._backend.cache.pop(collective)
        before = x.copy()
        with pytest.raises(ValueError, match="kernel 'collective': 300 iterations"):
            collective(x, 300)
        assert np.array_equal(x, before)
