"""What the examples share: checking against NumPy, argument types, progress, colours, PNG files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32_ROUNDOFF = 2.0**-24  # the largest relative error of one f32 operation

# A black-body palette: from black through red and yellow to white, evenly spaced.
HEAT = ("#000004", "#280b54", "#65156e", "#9f2a63", "#d44842", "#f57d15", "#fac127", "#fcffa4")


def check(name: str, got: ArrayLike, want: ArrayLike, bound: ArrayLike) -> bool:
    """Print how far ``got`` is from ``want`` beside ``bound``, and return whether all are within it.

    The three broadcast against each other, so a bound may differ from element to element. The
    figures printed are those of the element that comes closest to its bound.
    """
    error = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64))
    limits = np.broadcast_to(np.asarray(bound, np.float64), error.shape)
    within = error <= limits  # false for a NaN
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(within, np.where(limits > 0, error / limits, 0.0), np.inf)
    worst = np.unravel_index(np.argmax(ratio), ratio.shape) if ratio.size else None
    figures = f"max error {error[worst]:.3g}, bound {limits[worst]:.3g}" if worst is not None else "empty"
    passed = bool(within.all())
    print(f"{'ok  ' if passed else 'FAIL'} {name}: {figures}, {error.size:,} values")
    return passed


def positive_int(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return value


def progress(steps: range, name: str) -> Iterator[int]:
    """``steps``, with a bar that advances beside them if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        yield from bar.track(steps, description=f"  {name}")


def colourise(values: NDArray[np.floating], palette: tuple[str, ...] = HEAT) -> NDArray[np.uint8]:
    """RGB bytes for values from 0 (the palette's first colour) to 1 (its last)."""
    stops = np.linspace(0.0, 1.0, len(palette))
    rgb = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in palette])
    channels = [np.interp(values, stops, rgb[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write ``pixels``, (height, width) or (height, width, 3), and print where they went."""
    from PIL import Image

    try:
        Image.fromarray(pixels).save(path)
    except (OSError, ValueError) as error:
        sys.exit(f"cannot write {path}: {error}")
    print(f"wrote {path} ({pixels.shape[1]} x {pixels.shape[0]})")
