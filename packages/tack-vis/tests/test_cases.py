"""The table of cases: that it is what its generator writes, and what makes its surfaces close."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections import Counter

import cube_cases
import pytest

from tack.vis import cube_cases as table


def test_the_module_is_what_the_generator_writes() -> None:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        cube_cases.main()
    found: dict[str, tuple[int, ...]] = {}
    exec(written.getvalue(), found)
    assert found["CUBE_CASES"] == table.CUBE_CASES


def triangles(case: int) -> list[tuple[int, ...]]:
    word = table.CUBE_CASES[case]
    codes = (word >> 4 * (i + 1) & 15 for i in range(3 * (word & 15)))
    flat = tuple({cube_cases.code(e): e for e in range(12)}[code] for code in codes)
    return [flat[i : i + 3] for i in range(0, len(flat), 3)]


def corners(edge: int) -> tuple[int, int]:
    axis, place = divmod(edge, 4)
    low, high = [bit for bit in range(3) if bit != axis]
    start = (place & 1) << low | (place >> 1) << high
    return start, start | 1 << axis


@pytest.mark.parametrize("case", range(256))
def test_every_crossed_edge_has_a_point_and_no_other(case: int) -> None:
    crossed = {e for e in range(12) if len({case >> c & 1 for c in corners(e)}) == 2}
    assert {e for t in triangles(case) for e in t} == crossed


@pytest.mark.parametrize("case", range(256))
def test_surfaces_end_on_the_faces_of_the_cube(case: int) -> None:
    """Edges of triangles are shared in both directions, or lie on a face."""
    directed = Counter((t[i], t[(i + 1) % 3]) for t in triangles(case) for i in range(3))
    assert set(directed.values()) <= {1}
    for a, b in directed:
        on_face = cube_cases.on_one_face(a, b)
        assert ((b, a) in directed) != on_face


def test_faces_agree_between_neighbours() -> None:
    """The lines on a face depend on its four corners alone; neighbours have them in opposite directions."""
    for axis in range(3):
        bit = 1 << axis
        for pattern in itertools.product((0, 1), repeat=4):
            seen = set()
            for side in (0, bit):
                face = [c for c in range(8) if c & bit == side]
                for rest in range(16):
                    case = sum(1 << c for c, inside in zip(face, pattern, strict=True) if inside)
                    case |= sum(1 << (c ^ bit) for i, c in enumerate(face) if rest >> i & 1)
                    lines = {
                        (a, b)
                        for a, b in cube_cases.lines(case)
                        if all(c & bit == side for e in (a, b) for c in corners(e))
                    }
                    moved = {(a - shift(a, axis, side), b - shift(b, axis, side)) for a, b in lines}
                    seen.add(frozenset(moved if side == 0 else {(b, a) for a, b in moved}))
            assert len(seen) == 1


def shift(edge: int, axis: int, side: int) -> int:
    """How much the number of the edge at the same place of the opposite face differs."""
    if not side:
        return 0
    others = [bit for bit in range(3) if bit != edge // 4]
    return 1 << others.index(axis)
