"""Pictures of particles, and pictures side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

BACKGROUND = (13, 17, 28)
SUPERSAMPLED = 2  # pixels along the side of each pixel of the result


def dots(
    x: NDArray[np.floating],
    y: NDArray[np.floating],
    colours: NDArray[np.uint8],
    size: int,
    radius: float = 1.5,
    background: tuple[int, int, int] = BACKGROUND,
) -> Picture:
    """Filled circles of ``radius`` pixels in the unit square, y upwards, as (size, size, 3) bytes.

    ``colours`` is one RGB triple or one for each dot; later dots cover earlier ones.
    """
    wide = size * SUPERSAMPLED
    canvas = np.full((wide, wide, 3), background, np.uint8)
    across = np.floor(np.asarray(x) * wide).astype(int)
    down = np.floor((1.0 - np.asarray(y)) * wide).astype(int)
    reach = int(np.ceil(radius * SUPERSAMPLED))
    colours = np.broadcast_to(colours, (len(across), 3))
    for di in range(-reach, reach + 1):
        for dj in range(-reach, reach + 1):
            if di * di + dj * dj <= (radius * SUPERSAMPLED) ** 2:
                row, column = down + di, across + dj
                seen = (row >= 0) & (row < wide) & (column >= 0) & (column < wide)
                canvas[row[seen], column[seen]] = colours[seen]
    return shrink(canvas, SUPERSAMPLED)


def shrink(picture: Picture, factor: int) -> Picture:
    """Each square of ``factor`` x ``factor`` pixels averaged; what is over at the edges is cut off."""
    rows, columns = picture.shape[0] // factor, picture.shape[1] // factor
    cut = picture[: rows * factor, : columns * factor]
    blocks = cut.reshape(rows, factor, columns, factor, 3)
    return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)


def side_by_side(pictures: Sequence[Picture], gap: int = 4) -> Picture:
    """Pictures of one height in a row."""
    bar = np.zeros((pictures[0].shape[0], gap, 3), np.uint8)
    parts = [part for picture in pictures for part in (bar, picture)][1:]
    return np.concatenate(parts, axis=1)
