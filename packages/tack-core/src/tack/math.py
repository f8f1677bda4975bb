"""The functions of shader languages, on scalars and vectors in kernels: `mix`, `smoothstep`, `reflect`, ...

The definitions are GLSL's (The OpenGL Shading Language 4.60, section 8). All work on each component of
vectors, and a scalar beside a vector goes with each of them, but for those of geometry (`length`,
`distance`, `dot`, `normalize`, `reflect`, `refract`), which take vectors as a whole and a scalar as a
vector of one. Types promote as in the formulas: f64 if an argument is f64, and integers stay
integers where the formula has no float.
"""

from __future__ import annotations

from typing import Any

from tack import cross, distance, dot, floor, func, length, sign, sqrt, where

__all__ = [
    "clamp",
    "cross",
    "distance",
    "dot",
    "fract",
    "length",
    "mix",
    "normalize",
    "reflect",
    "refract",
    "saturate",
    "sign",
    "smoothstep",
    "step",
]

# --- of each component ---


@func
def fract(x: Any) -> Any:
    """``x - floor(x)``: the part behind the point, counted from below."""
    return x - floor(x)


@func
def mix(x: Any, y: Any, a: Any) -> Any:
    """From ``x`` at ``a == 0`` to ``y`` at ``a == 1``, linearly, and on beyond; a float."""
    return x * (1.0 - a) + y * a


@func
def clamp(x: Any, low: Any, high: Any) -> Any:
    """``x``, or the bound that it is beyond; ``low`` if it is NaN."""
    return min(max(x, low), high)


@func
def saturate(x: Any) -> Any:
    """``x`` clamped to 0 and 1; a float."""
    return clamp(x, 0.0, 1.0)


@func
def step(edge: Any, x: Any) -> Any:
    """0.0 where ``x < edge``, else 1.0."""
    return where(x < edge, 0.0, 1.0)


@func
def smoothstep(low: Any, high: Any, x: Any) -> Any:
    """From 0.0 at ``low`` to 1.0 at ``high``, flat at both and beyond them."""
    t = saturate((x - low) / (high - low))
    return t * t * (3.0 - 2.0 * t)


# --- of vectors as a whole; `cross`, `distance`, `dot` and `length` are the language's own ---


@func
def normalize(v: Any) -> Any:
    """The vector of length 1 in the direction of ``v``; NaN for zero."""
    return v / length(v)


@func
def reflect(incident: Any, normal: Any) -> Any:
    """``incident`` mirrored at the plane across ``normal``, a vector of length 1."""
    return incident - 2.0 * dot(normal, incident) * normal


@func
def refract(incident: Any, normal: Any, eta: Any) -> Any:
    """``incident`` bent where it meets a surface; zero if it is reflected as a whole.

    ``incident`` and ``normal`` have length 1, and ``eta`` is the ratio of the indices of refraction, that of
    the medium that ``incident`` comes from over that of the other.
    """
    cosine = dot(normal, incident)
    k = 1.0 - eta * eta * (1.0 - cosine * cosine)
    return 0.0 if k < 0.0 else eta * incident - (eta * cosine + sqrt(k)) * normal
