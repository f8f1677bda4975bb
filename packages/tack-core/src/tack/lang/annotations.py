"""Annotations of parameters and results: the types that they pin."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import DType, VectorType, as_dtype, f32, i32
from tack.lang.bindings import UNBOUND, Bindings
from tack.lang.source import parse

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel

__all__ = ["annotated_types", "dtype_of_annotation", "resolve_annotation", "return_type", "vector_params"]


def vector_params(kernel: Kernel) -> dict[str, VectorType]:
    """The parameters of a kernel that are annotated with a vector type."""
    kinds = annotated_types(kernel.function)
    return {p: kind for p in kernel.params if isinstance(kind := kinds.get(p), VectorType)}


def annotated_types(function: Any) -> dict[str, DType | VectorType]:
    """The types that a function's annotations name, by parameter, and "return"; no other annotations."""
    found: dict[str, DType | VectorType] = {}
    meanings: dict[str, Any] = {}  # of texts: most parameters have the same
    for name, value in function.__annotations__.items():
        if isinstance(value, str):
            if value not in meanings:
                meanings[value] = resolve_annotation(function, value)
            value = meanings[value]
        kind = value if isinstance(value, VectorType) else dtype_of_annotation(value)
        if kind is not None:
            found[name] = kind
    return found


def return_type(function: Any) -> DType | None:
    """The type that a function's return annotation names; ``int`` is i32 and ``float`` f32."""
    value = function.__annotations__.get("return")
    if isinstance(value, str):
        value = resolve_annotation(function, value)
    if value is int or value is float:
        return i32 if value is int else f32
    return dtype_of_annotation(value)


def dtype_of_annotation(value: Any) -> DType | None:
    """The dtype that an annotation means: one of Tack's or NumPy's."""
    if isinstance(value, (DType, np.dtype)) or (isinstance(value, type) and issubclass(value, np.generic)):
        try:
            return as_dtype(value)
        except TypeError:
            return None
    return None


def resolve_annotation(function: Any, text: str) -> Any:
    """What an annotation kept as text means: a dotted name looked up, or None."""
    names = [text] if text.isidentifier() else _dotted_name(text)  # most are, and parsing takes long
    value = Bindings(function).dotted(names) if names else UNBOUND
    return None if value is UNBOUND else value


def _dotted_name(text: str) -> list[str]:
    """The parts of a name with dots, which may be quoted; nothing if it is something else."""
    try:
        node = parse(text, "eval").body
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = parse(node.value, "eval").body
    except SyntaxError:
        return []
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []
