"""Visualization filters for Tack's arrays, as kernels on the device where the data is."""

from tack.vis._version import VERSION as __version__  # noqa: F401
from tack.vis.contour import contour as contour
from tack.vis.mesh import Mesh as Mesh
