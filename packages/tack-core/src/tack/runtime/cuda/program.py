"""CUBINs, and PTX where NVRTC is older than the device."""

from __future__ import annotations

from typing import Any, final

from tack.runtime.cuda import nvrtc
from tack.runtime.streams.driver import DriverError
from tack.runtime.streams.program import StreamProgram

__all__ = ["CudaProgram"]


@final
class CudaProgram(StreamProgram):
    """A module of the CUDA driver."""

    __slots__ = ()

    def load_module(self, artifact: bytes) -> Any:
        """The driver's handle of a CUBIN, or of PTX, which the driver compiles."""
        if artifact.startswith(b"\x7fELF"):
            return super().load_module(artifact)
        try:
            return self.queue.check(self.queue.driver.ModuleLoadData(artifact + b"\0"))
        except DriverError as error:
            raise RuntimeError(
                f"NVRTC {nvrtc.find().version} does not know the device's architecture, and the driver "
                f"refuses its PTX ({error}); install an NVRTC that knows it, or a newer driver"
            ) from error
