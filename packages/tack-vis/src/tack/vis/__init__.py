"""Visualization filters for Tack's arrays, as kernels on the device where the data is."""

from tack.vis._version import VERSION as __version__  # noqa: F401
from tack.vis.contour import contour as contour
from tack.vis.filters import cell_to_point as cell_to_point
from tack.vis.filters import gradient as gradient
from tack.vis.filters import point_to_cell as point_to_cell
from tack.vis.filters import slice_plane as slice_plane
from tack.vis.filters import surface_normals as surface_normals
from tack.vis.filters import threshold as threshold
from tack.vis.interop import Grid as Grid
from tack.vis.interop import from_vtk as from_vtk
from tack.vis.interop import to_vtk as to_vtk
from tack.vis.mesh import Mesh as Mesh
from tack.vis.squares import Lines as Lines
from tack.vis.squares import marching_squares as marching_squares
