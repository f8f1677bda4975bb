"""Visualization filters for Tack's arrays, as kernels on the device where the data is."""

from tack.vis._version import VERSION as __version__  # noqa: F401
from tack.vis.contour import contour as contour
from tack.vis.interop import Grid as Grid
from tack.vis.interop import from_vtk as from_vtk
from tack.vis.interop import to_vtk as to_vtk
from tack.vis.mesh import Mesh as Mesh
