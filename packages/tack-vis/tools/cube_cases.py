"""Writes `tack/vis/cube_cases.py`: which triangles cut a cube, for each set of corners inside.

    python cube_cases.py > ../src/tack/vis/cube_cases.py

Corner c is at (c & 1, c >> 1 & 1, c >> 2 & 1), and case n has the corners inside whose bits are set. Edge
4 * axis + p runs along an axis; p counts the two other coordinates, the first of them fastest.

On each face the surface is a line, or two, between crossed edges. Two corners inside on a face's diagonal
are kept apart there; that depends on the face alone, so that both cubes beside it agree and there are no
holes. The lines of all faces close to loops. A loop becomes triangles by diagonals through the cube's
interior: one on a face could be a neighbour's, too, and four triangles would meet in it.

Which diagonals is taken from what vtkFlyingEdges3D makes of single cells: its choice depends on the turns of
a loop (`turns`), so cases that a rotation takes to each other have the same diagonals. Where a rotation takes
a case to itself, it could be any of several; `ORDER` and `NEAR_ONE` decide as VTK does.
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


# A loop's triangles by its turns, as places in the loop, which starts where the turns are these.
CUTS = {
    "111": "012",
    "2121": "012 023",
    "2222": "013 123",
    "2323": "013 123",
    "333": "012",
    "12213": "014 123 134",
    "13223": "014 124 234",
    "123123": "015 123 135 345",
    "313131": "012 023 035 345",
    "321321": "015 123 135 345",
    "331331": "015 123 134 145",
    "1232133": "016 126 236 346 456",
}
# The loops of cubes that have two and cut one of them in another way.
CUTS_OF_TWO = {
    ("111", "12213"): ("012", "013 034 123"),
    ("2121", "2121"): ("013 123", "012 023"),
}

# Turns that repeat themselves fit from several edges on, of which the first of these is taken.
ORDER = (3, 6, 0, 10, 5, 2, 9, 4, 7, 1, 11, 8)
NEAR_ONE = (0, 1, 2, 3, 5, 4, 7, 6, 9, 8, 11, 10)  # for 331331: of two edges, the one nearer to corner 1


def ends(edge: int) -> set[int]:
    """The two corners of an edge."""
    return {c for c in range(8) for bit in (1, 2, 4) if edge_between(c, c ^ bit) == edge}


def turns(case: int, loop: Loop) -> str:
    """For each edge of a loop and the next, how many corners inside the line between them goes around.

    That is 1 where both edges have one corner inside, 3 where they have one corner outside, else 2.
    """
    found = ""
    for edge, following in zip(loop, loop[1:] + loop[:1], strict=True):
        shared = ends(edge) & ends(following)
        found += "2" if not shared else "1" if case >> shared.pop() & 1 else "3"
    return found


def placed(case: int, loop: Loop) -> tuple[str, Loop]:
    """A loop's turns as `CUTS` has them, and the loop from where they are so."""
    rotations = (loop[i:] + loop[:i] for i in range(len(loop)))
    fitting = {rotated[0]: (key, rotated) for rotated in rotations if (key := turns(case, rotated)) in CUTS}
    order = NEAR_ONE if any(key == "331331" for key, _ in fitting.values()) else ORDER
    return fitting[min(fitting, key=order.index)]


def triangles(case: int) -> list[Triangle]:
    """A case's triangles, as vtkFlyingEdges3D makes them."""
    found = loops(case)
    if len(found) == 1 and case.bit_count() == 4 and case >> 6 & 1:
        return [(a, c, b) for a, b, c in triangles(255 - case)]  # the same, seen from the other side
    parts = [placed(case, loop) for loop in found]
    parts.sort(key=lambda part: (part[0], ORDER.index(part[1][0])))
    keys = tuple(key for key, _ in parts)
    cuts = CUTS_OF_TWO.get(keys) or [CUTS[key] for key in keys]
    return [
        (loop[int(a)], loop[int(b)], loop[int(c)])
        for (_, loop), cut in zip(parts, cuts, strict=True)
        for a, b, c in cut.split()
    ]


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
