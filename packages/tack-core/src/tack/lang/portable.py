"""What kernels and device functions have in common."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tack.lang.source import Source

__all__ = ["Portable"]


class Portable:
    """A Python function with its source, which can be pickled: see `tack.lang.pickling`."""

    __module__: str
    __qualname__: str
    _ticket: str | None = None  # names the function among those that travelled

    def _adopt(self, function: FunctionType, source: Source, options: dict[str, Any]) -> None:
        """Initializes the object; ``options`` are the decorator's."""
        self.function = function
        self.source = source

    def _options(self) -> dict[str, Any]:
        """The decorator's options, for `_adopt` in another process."""
        return {}

    def __reduce__(self) -> Any:
        from tack.lang.pickling import reduced  # few programs need it

        return reduced(self)

    def __setstate__(self, contents: Any) -> None:
        contents.complete(self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self
