"""Writes `tack/vis/cube_cases.py`: which triangles cut a cube, for each set of corners inside.

    python cube_cases.py > ../src/tack/vis/cube_cases.py

Corner c is at (c & 1, c >> 1 & 1, c >> 2 & 1), and case n has the corners inside whose bits are set. Edge
4 * axis + p runs along an axis; p counts the two other coordinates, the first of them fastest.

On each face the surface is a line, or two, between crossed edges. Two corners inside on a face's diagonal
are kept apart there; that depends on the face alone, so that both cubes beside it agree and there are no
holes. The lines of all faces close to loops, which are the polygons of VTK's table. A loop becomes triangles
by diagonals through the cube's interior: one on a face could be a neighbour's, too, and four triangles would
meet in it.
"""

from __future__ import annotations

from collections.abc import Iterator

Loop = tuple[int, ...]
Triangle = tuple[int, int, int]


def edge_between(a: int, b: int) -> int:
    """The edge between two corners that differ in one bit."""
    axis = (a ^ b).bit_length() - 1
    others = [bit for bit in range(3) if bit != axis]
    return 4 * axis + (a >> others[0] & 1) + 2 * (a >> others[1] & 1)


def faces() -> list[Loop]:
    """The corners of each face, counterclockwise as seen from outside the cube."""
    found = []
    for axis in range(3):
        u, v = 1 << (axis + 1) % 3, 1 << (axis + 2) % 3
        round_corners = (0, u, u | v, v)  # counterclockwise as seen from the positive side
        found.append(tuple(c | 1 << axis for c in round_corners))
        found.append(round_corners[::-1])
    return found


def face_edges(face: Loop) -> list[int]:
    return [edge_between(a, b) for a, b in zip(face, face[1:] + face[:1], strict=True)]


FACES = [(face, face_edges(face)) for face in faces()]


def lines(case: int) -> Iterator[tuple[int, int]]:
    """The surface's lines on the faces, each from one edge to another, in the direction of its loop."""
    for corners, edges in FACES:
        inside = [case >> corner & 1 for corner in corners]
        for i in range(4):
            if inside[i - 1] or not inside[i]:
                continue
            # Corner i is the first of a run inside; the line goes around the run.
            last = i
            while inside[(last + 1) % 4]:
                last += 1
            yield edges[i - 1], edges[last % 4]


def loops(case: int) -> list[Loop]:
    """The closed lines, each from its lowest edge on."""
    after = dict(lines(case))
    found = []
    while after:
        loop = [min(after)]
        while after[loop[-1]] != loop[0]:
            loop.append(after.pop(loop[-1]))
        del after[loop[-1]]
        found.append(tuple(loop))
    return found


def on_one_face(a: int, b: int) -> bool:
    return any(a in edges and b in edges for _, edges in FACES)


def triangulations(loop: Loop) -> Iterator[list[Triangle]]:
    """All ways to cut a loop into triangles by diagonals that are on no face, the loop's order kept."""
    if len(loop) < 3:
        yield []
        return
    first, last = loop[0], loop[-1]
    for i in range(1, len(loop) - 1):
        middle = loop[i]
        if i > 1 and on_one_face(first, middle):
            continue
        if i < len(loop) - 2 and on_one_face(middle, last):
            continue
        for left in triangulations(loop[: i + 1]):
            for right in triangulations(loop[i:]):
                yield [(first, middle, last), *left, *right]


def triangles(case: int) -> list[Triangle]:
    return [triangle for loop in loops(case) for triangle in next(triangulations(loop))]


def code(edge: int) -> int:
    """The number of an edge in the table, for `tack.vis.flying_edges`; it is not 0.

    Twice the number of the row that owns it among those with edges along its axis (four along x, then two
    along y, then two along z), and 1 more unless it starts one further along x.
    """
    return (2 * edge if edge < 4 else edge + 4) ^ 1


def packed(case: int) -> int:
    """The case's triangles in 64 bits: their number in the lowest four, then four for each corner's edge."""
    found = triangles(case)
    codes = [code(e) for triangle in found for e in triangle]
    return len(found) | sum(c << 4 * (i + 1) for i, c in enumerate(codes))


def main() -> None:
    print('"""Written by tools/cube_cases.py, which says what the numbers mean. Do not edit."""')
    print("\n# fmt: off\nCUBE_CASES = (")
    for first in range(0, 256, 4):
        print("    " + " ".join(f"{packed(case):#018x}," for case in range(first, first + 4)))
    print(")")


if __name__ == "__main__":
    main()
