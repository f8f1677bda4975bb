"""Reading a NIfTI file into a volume with values from 0 to 1, or saying in one line why not."""

from __future__ import annotations

import errno
import logging
import math
import os
import zlib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Volume = NDArray[np.float32]
Spacing = tuple[float, float, float]

TEMPLATE = "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"


TOO_LARGE = "too large for memory"
BYTES_OF_A_VOXEL = 29  # at most, while they are scaled in f64


class BadInput(Exception):
    """A problem with a file, to be reported in one line."""


def template() -> Path:
    """The T1 template in the nilearn package."""
    try:
        return Path(str(resources.files("nilearn") / TEMPLATE))
    except ModuleNotFoundError:
        raise BadInput("no file given, and nilearn, whose template would be used, is not installed") from None


def load(path: Path) -> tuple[Volume, Spacing]:
    """A NIfTI volume as f32 in RAS order, and its voxel spacing in mm; `BadInput` if it is not one."""
    import nibabel
    from nibabel.filebasedimages import ImageFileError
    from nibabel.orientations import OrientationError
    from nibabel.spatialimages import HeaderDataError

    logging.getLogger("nibabel.global").setLevel(logging.CRITICAL)  # its notes on odd headers
    if not path.exists():
        raise BadInput("no such file")
    if not path.is_file():
        raise BadInput("not a file")
    if path.stat().st_size == 0:
        raise BadInput("the file is empty")
    try:
        image = nibabel.load(path)
        check_header(image)
        spacing_of(image)  # before turning it, which a spacing of 0 would upset
        image = nibabel.as_closest_canonical(nibabel.squeeze_image(image))
        spacing = spacing_of(image)
        with np.errstate(all="ignore"):
            volume = np.ascontiguousarray(image.get_fdata(dtype=np.float32, caching="unchanged"))
    except MemoryError:
        raise BadInput(TOO_LARGE) from None
    except PermissionError:
        raise BadInput("permission denied") from None
    except (ImageFileError, HeaderDataError, OrientationError) as error:
        raise BadInput(f"not a readable NIfTI file ({first_line(error)})") from None
    except (OSError, EOFError, ValueError, zlib.error, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise BadInput(TOO_LARGE) from None
        raise BadInput(f"damaged or truncated ({first_line(error)})") from None
    return volume, spacing


def check_header(image: Any) -> None:
    """Raise `BadInput` unless a loaded file is NIfTI and holds one 3-D volume of real numbers in full."""
    import nibabel

    if not isinstance(image, nibabel.Nifti1Pair):
        raise BadInput(f"not a NIfTI volume but {type(image).__name__}")
    shape, dtype = image.shape, image.get_data_dtype()
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    extents = " x ".join(map(str, image.shape))
    if len(shape) != 3:
        raise BadInput(f"expected one 3-D volume, found {len(image.shape)}-D data ({extents})")
    if min(shape) < 2:
        raise BadInput(f"expected at least 2 voxels along each axis, found {extents}")
    if dtype.kind not in "biuf":
        raise BadInput(f"expected real numbers, found voxels of type {dtype}")
    end = image.dataobj.offset + math.prod(shape) * dtype.itemsize
    stored = stored_bytes(image.file_map["image"])
    if stored < end:
        raise BadInput(f"truncated: {extents} voxels end at byte {end:,} of {stored:,}")
    needed, there = math.prod(shape) * BYTES_OF_A_VOXEL, memory()
    if needed > there:
        raise BadInput(f"{TOO_LARGE}: {extents} voxels take {needed / 1e9:,.1f} GB of {there / 1e9:,.1f}")


def spacing_of(image: Any) -> Spacing:
    """The voxel spacing in mm, from the header's affine and unit."""
    import nibabel

    to_mm = {1: 1e3, 3: 1e-3}.get(int(image.header["xyzt_units"]) & 7, 1.0)  # metres, micrometres
    x, y, z = (float(size) * to_mm for size in nibabel.affines.voxel_sizes(image.affine))
    if not all(1e-6 < size < 1e6 for size in (x, y, z)):
        raise BadInput(f"voxel spacing {x:g} x {y:g} x {z:g} mm is not usable")
    return x, y, z


def memory() -> float:
    """The machine's memory in bytes, or infinity where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def stored_bytes(holder: Any) -> int:
    """The length of the file that holds the voxels, uncompressed and with its checksum verified.

    nibabel itself stops at the last voxel, before the checksum, and first allocates what the header
    asks for.
    """
    if Path(holder.filename).suffix not in (".gz", ".bz2", ".zst"):
        return Path(holder.filename).stat().st_size
    with holder.get_prepare_fileobj("rb") as stream:
        return sum(map(len, iter(lambda: stream.read(1 << 20), b"")))


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def scaled(volume: Volume) -> Volume:
    """The volume with its 0.1 and 99.9 percentiles at 0 and 1, clipped; NaN and infinity are 0."""
    finite = np.isfinite(volume)
    values = volume[finite]
    if values.size == 0:
        raise BadInput("no voxel has a finite value")
    low, high = np.percentile(values, [0.1, 99.9]).astype(np.float64)
    if low == high:  # fewer than one voxel in a thousand differs
        low, high = float(values.min()), float(values.max())
    if low == high:
        raise BadInput(f"every voxel has the same value ({low:g})")
    if values.size < volume.size:
        print(f"  {volume.size - values.size:,} voxels are NaN or infinite and count as background")
    result = np.clip((volume.astype(np.float64) - low) / (high - low), 0.0, 1.0)
    return np.where(finite, result, 0.0).astype(np.float32)
