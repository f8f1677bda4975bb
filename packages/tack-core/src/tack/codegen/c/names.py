"""C identifiers for a kernel's names."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Names"]

# The beginnings of identifiers that are ours or the compiler's, and the names of our types.
_OURS = re.compile(r"tack_|_[A-Z_]|[iuf](8|16|32|64)$")
# The functions that generated code calls in every dialect.
_MATH = """
    sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p erf erfc
    atan2 hypot pow fmod copysign fma fmin fmax fabs floor ceil rint trunc
"""
_FUNCTIONS = {
    *(name + suffix for name in _MATH.split() for suffix in ("", "f")),
    *("min", "max", "isnan", "isinf", "isfinite"),
}


class Names:
    """Gives each name of a kernel an identifier of its own, the name itself where that can be."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = {*reserved, *_FUNCTIONS}
        self._found: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self.fresh(name)
        return found

    def fresh(self, name: str) -> str:
        """An identifier that nothing else has."""
        base = re.sub(r"[^A-Za-z0-9_]", lambda m: "_" if m[0] == "." else f"_{ord(m[0]):x}", name)
        if _OURS.match(base) or base[0].isdigit():
            base = f"v{base}"
        found, count = base, 1
        while found in self._taken:
            count += 1
            found = f"{base}_{count}"
        self._taken.add(found)
        return found
