"""What vectors and matrices reject: the type of the error, its place, and a word that helps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tack

from .helpers import Rejection

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError

HEAD = """
CONSTANT = tack.constant((1, 2, 3))

@tack.func
def first(v):
    return v.x

@tack.func
def either(v, c):
    if c > 0:
        return v
    return {either}

@tack.func
def pinned(v: tack.vec3):
    return v

@tack.kernel
def kernel(o, a, s, k, f, u, m3, x: tack.vec2):
    for i in range(3):
        v = a[i]
        w = [1.0, 2.0]
        m = tack.mat2(1.0)
        b = v > 0
"""

# name: (type, statements of the loop, a word that the message must have)
TYPES: dict[str, tuple[str, str]] = {
    # widths
    "widths in an operator": ("n = «v + w»", "vector of"),
    "widths in a comparison": ("n = «v < w»", "vector of"),
    "widths in a chain of operators": ("n = v * («v + w») - 1", "vector of"),
    "widths in a logical operator": ("n = «b and w»", "vector of"),
    "widths in a builtin": ("n = «min(v, w)»", "vector of"),
    "widths in a builtin of three": ("n = «fma(v, v, w)»", "vector of"),
    "widths of a mask and its arms": ("n = «where(w > 0, v, v)»", "vector of"),
    "widths of the arms of where": ("n = «where(b, v, w)»", "vector of"),
    "widths of the arms of a conditional": ("n = «v if k > 0 else w»", "vector of"),
    "widths in an augmented assignment": ("«v += w»", "vector of"),
    "widths of powers": ("n = «v ** w»", "vector of"),
    "widths of pow()": ("n = «pow(v, w)»", "vector of"),
    "vector with a matrix": ("n = «v * m»", "matrix"),
    "matrix with a vector": ("n = «m + w»", "matrix"),
    "matrices of two shapes": ("n = «m + m3[i]»", "matrix"),
    "dot of two widths": ("n = «v.dot(w)»", "3 and 2"),
    "dot() of two widths": ("n = «dot(w, v)»", "2 and 3"),
    "dot of a number": ("n = «v.dot(k)»", "number"),
    "distance of two widths": ("n = «v.distance(w)»", "3 and 2"),
    "cross of vectors of two": ("n = «w.cross(w)»", "3"),
    "outer of a long vector": ("n = «[1, 2, 3, 4, 5].outer(w)»", "4"),
    "eps of normalized is a vector": ("n = «v.normalized(v)»", "number"),
    "length of a matrix": ("n = «m.length()»", "vector"),
    # products
    "matrix by vector": ("n = «m @ v»", "3"),
    "vector by matrix": ("n = «v @ m»", "3"),
    "matrix by matrix": ("n = «m @ m3[i]»", "3"),
    "vector by vector": ("n = «v @ w»", "2"),
    "vector by number": ("n = «v @ 2»", "number"),
    "number by number": ("n = «k @ 2»", "number"),
    "augmented product": ("«w @= m3[i]»", "3"),
    # square matrices only
    "transpose of a vector": ("n = «v.transpose()»", "matrix"),
    "trace of a vector": ("n = «v.trace()»", "matrix"),
    "determinant of a rectangle": ("n = «tack.matrix(2, 3, tack.f32)(0).determinant()»", "square"),
    "inverse of a rectangle": ("n = «tack.matrix(2, 3, tack.f32)(0).inverse()»", "square"),
    "identity of a rectangle": ("n = «tack.matrix(2, 3, tack.f32).identity()»", "square"),
    "identity of a vector type": ("n = «tack.vec3.identity()»", "square"),
    # a scalar is needed
    "vector stored to a number": ("«o[i]» = v", "vector of 3"),
    "mask stored to a number": ("«o[i]» = b", "vector of 3"),
    "vector as an operand of a chain": ("n = 0 < «v» < 1", "vector of 3"),
    "vector as a bound": ("for n in range(«v»):\n            pass", "vector of 3"),
    "vector as the start of a bound": ("for n in range(«v», 3):\n            pass", "vector of 3"),
    "vector beside an index": ("«o[i, «v]» = 1", "vector of 3"),
    "vector as a component index": ("n = w[«v»]", "vector of 3"),
    "vector as a stored component index": ("w[«v»] = 1", "vector of 3"),
    "vector in a list": ("n = [1, «v»]", "vector of 3"),
    "vector added by an atomic": ("«tack.atomic_add(o, 0, v)»", "vector of 3"),
    "vector index of the wrong length": ("«o[v]» = 1", "3 indices"),
    "vector index that is a float": ("o[«v.x»] = 1", "integer"),
    # shapes of targets
    "vector stored to an array of another width": ("«a[i]» = w", "vector of"),
    "matrix stored to an array of vectors": ("«a[i]» = m", "matrix"),
    "vector stored to a matrix": ("m = m\n        «m[0]» = v", "vector of"),
    "vector stored to a component": ("«v.x» = w", "vector of 2"),
    "vector stored to an indexed component": ("«v[k]» = w", "vector of 2"),
    "variable that changes its width": ("«v» = w", "vector of"),
    "variable that becomes a number": ("«v» = 3", "vector of 3"),
    "number that becomes a vector": ("n = 3\n        «n» = v", "vector of 3"),
    "augmented number": ("n = 3\n        «n» += v", "vector of 3"),
    "width of a pinned parameter": ("n = «pinned(w)»", "vector of"),
    "number for a pinned parameter": ("n = «pinned(1.0)»", "number"),
    "unpacking a vector": ("«n, r, t = v»", "1 value"),
    "atomic with another width": ("«tack.atomic_add(a, i, w)»", "vector of"),
    # components that are not there
    "component of a short vector": ("n = «w.z»", "vector of 2"),
    "stored component of a short vector": ("«w.z» = 1", "vector of 2"),
    "swizzle of a short vector": ("n = «w.xyz»", "vector of 2"),
    "index past the end": ("n = v[«3»]", "3"),
    "index before the start": ("n = v[«-4»]", "-4"),
    "stored index past the end": ("v[«3»] = 1", "3"),
    "stored index before the start": ("v[«-4»] = 1", "-4"),
    "index of an element": ("n = a[i][«3»]", "3"),
    "row past the end": ("n = m[«2»]", "2"),
    "column past the end": ("n = m[0, «2»]", "2"),
    "stored column past the end": ("m[0, «-3»] = 1", "-3"),
    "float index": ("n = v[«1.0»]", "1.0"),
    "stored float index": ("v[«1.0»] = 1", "1.0"),
    "two indices of a vector": ("n = «v[0, 1]»", "2 indices"),
    "three indices of a matrix": ("n = «m[0, 1, 0]»", "3 indices"),
    "two indices of a constant vector": ("n = «CONSTANT[0, 1]»", "2 indices"),
    # constructors and casts
    "too few components": ("n = «tack.vec3(1, 2)»", "3"),
    "too many components": ("n = «tack.vec3(1, 2, 3, 4)»", "3"),
    "no components": ("n = «tack.vec3()»", "3"),
    "vector of another width": ("n = «tack.vec3(w)»", "3"),
    "too many with a vector": ("n = «tack.vec3(v, 1)»", "3"),
    "too few rows": ("n = «tack.mat2([1, 2])»", "4"),
    "arity of a function": ("n = «first(v, v)»", "takes 1"),
    # dtypes
    "bits of floats": ("n = «v & 1»", "integer"),
    "inverted floats": ("n = «~v»", "integer"),
    "shifted floats": ("n = «v << 1»", "integer"),
    "popcount of floats": ("n = «popcount(v)»", "integer"),
    "signed beside u64": ("n = «u[i] + [k, k]»", "u64"),
    "signed beside u64 in one vector": ("n = [«u[i].x», «k»]", "u64"),
    "negative literal power": ("n = «[1, 2] ** -1»", "integer"),
    "negative literal powers": ("n = «[k, k] ** [1, -2]»", "integer"),
    "bitcast between sizes": ("n = «bitcast(v, tack.i64)»", "width"),
    "bit operation in an atomic": ("«tack.atomic_or(a, i, 1)»", "integer"),
}
SYNTAXES: dict[str, tuple[str, str]] = {
    "vector as a condition": ("if «v»:\n            pass", "any("),
    "mask as a condition": ("if «v > 0»:\n            pass", "any("),
    "mask in elif": ("if k > 0:\n            pass\n        elif «v > 0»:\n            pass", "all("),
    "mask as a condition of while": ("while «b»:\n            pass", "any("),
    "mask as a condition of an expression": ("n = 1 if «v == v» else 2", "all("),
    "negated mask as a condition": ("if «not b»:\n            pass", "any("),
    "joined masks as a condition": ("if «b and b»:\n            pass", "any("),
    "empty list": ("n = «[]»", "local_array"),
    "nested list": ("n = [«[1, 2]», [3, 4]]", "mat2"),
    "list as a target": ("«[n, r]» = 1, 2", "tuple"),
    "list that is iterated": ("for n in «[1, 2]»:\n            pass", "range"),
    "vector that is iterated": ("for n in «v»:\n            pass", "range"),
    "long list": ("n = «[1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8]»", "16"),
    "stored swizzle": ("«v.xy» = w", "one component"),
    "augmented swizzle": ("«v.xy» += 1", "one component"),
    "stored swizzle of an element": ("«a[i].xy» = w", "one component"),
    "stored component of an expression": ("(«v + 1»).x = 2", "components"),
    "stored component of a call": ("«tack.vec2(1, 2)».x = 2", "components"),
    "stored component of a component": ("«v.x».y = 2", "number"),
    "unknown component": ("n = «v.q»", ".q"),
    "unknown swizzle": ("n = «v.xq»", ".xq"),
    "mixed letters": ("n = «v.xg»", ".xg"),
    "long swizzle": ("n = «v.xyzxy»", ".xyzxy"),
    "swizzle of a matrix": ("n = «m.x»", "matrix"),
    "component of a number": ("n = «k.x»", "x"),
    "component of a local number": ("n = 3\n        r = «n.x»", "number"),
    "stored component of a local number": ("n = 3\n        «n».x = 1", "number"),
    "unknown method": ("n = «v.unit()»", "unit"),
    "len of a number": ("n = «len(k + 1)»", "len()"),
    "method with arguments": ("n = «v.sum(1)»", "0"),
    "dot without an argument": ("n = «v.dot()»", "1"),
    "cross with two": ("n = «v.cross(v, v)»", "1"),
    "clz with two": ("n = «clz(v, v)»", "1"),
    "keyword arguments": ("n = tack.vec3(«x=1»)", "position"),
    "slice of a vector": ("n = v[«0:2»]", "slice"),
    "is": ("n = «v is w»", "=="),
    "in": ("n = «1 in v»", "=="),
}
VALUES: dict[str, tuple[str, str]] = {
    "too wide a type": ("n = «tack.vector(17, tack.f32)»(0)", "16"),
    "empty type": ("n = «tack.vector(0, tack.f32)»(0)", "1"),
    "too high a matrix": ("n = «tack.matrix(5, 1, tack.f32)»(0)", "4"),
}
NAMES: dict[str, tuple[str, str]] = {
    "component of an unassigned vector": ("«n».x = 1\n        n = v", "assigned"),
    "component of one set under an if": ("if k > 0:\n            «n = v\n        r = «n».x", "before"),
    "augmented unassigned vector": ("«n» += v", "assigned"),
}
CASES = {
    **{name: (TypeError, *case) for name, case in TYPES.items()},
    **{name: (SYNTAX, *case) for name, case in SYNTAXES.items()},
    **{name: (ValueError, *case) for name, case in VALUES.items()},
    **{name: (NameError, *case) for name, case in NAMES.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_rejections_name_the_place(name: str, rejects: Rejects) -> None:
    kind, statement, word = CASES[name]
    o, s = np.zeros((2, 2)), np.ones(3)
    a = tack.ones(3, tack.vec3)
    u = tack.ones(3, tack.vector(2, tack.u64))
    m3 = tack.ones(3, tack.mat3)
    source = HEAD.replace("{either}", "v") + f"        {statement}\n"
    found = rejects(kind, source, o, a, s, 2, 1.5, u, m3, (1, 2))
    assert word in found.text.replace(statement, ""), found.text
    assert "kernel 'kernel'" in found.text
    assert (a.numpy() == 1).all()


def test_results_of_two_shapes(rejects: Rejects) -> None:
    source = (
        HEAD.replace("{either}", "3").replace("    return 3", "    «return 3»") + "        n = either(v, k)\n"
    )
    args = (
        np.zeros(3),
        tack.ones(3, tack.vec3),
        np.ones(3),
        2,
        1.5,
        tack.ones(3),
        tack.ones(3, tack.mat3),
        (1, 2),
    )
    assert "number" in rejects(TypeError, source, *args).text


def test_the_bound_of_the_parallel_loop_is_a_number(rejects: Rejects) -> None:
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, v: tack.ivec2):\n    for i in range(«v»):\n        o[0] = 1\n",
        np.zeros(3),
        (1, 2),
    )


def test_a_kernel_returns_a_number(rejects: Rejects) -> None:
    source = """
@tack.kernel
def kernel(o, v: tack.vec2) -> float:
    for i in range(1):
        o[0] = 1
    return «v»
"""
    rejects(TypeError, source, np.zeros(3), (1, 2))


def test_a_vector_that_the_loop_changes_has_no_value_after_it(rejects: Rejects) -> None:
    source = """
@tack.kernel
def kernel(o, v: tack.vec2) -> float:
    for i in range(1):
        v.x = 1
    return «v».y
"""
    rejects(SYNTAX, source, np.zeros(3), (1, 2))


def test_arrays_of_vectors_where_numbers_are_expected(rejects: Rejects) -> None:
    """The position is that of the use: the same kernel is right for an array of numbers."""
    source = "@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n        «o[i]» = a[i] * 2\n"
    rejects(TypeError, source, np.zeros(3), tack.ones(3, tack.vec2))


def test_atomics_on_local_arrays_of_vectors(rejects: Rejects) -> None:
    source = """
@tack.kernel
def kernel(o):
    for i in range(1):
        l = tack.local_array(2, tack.vec2)
        tack.atomic_add(«l», 0, 1)
"""
    rejects(TypeError, source, np.zeros(3))
