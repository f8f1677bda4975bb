"""Walks meet every node once, parents first and in order; `nodes_of` sorts them by class."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.traversal import accesses, children, nodes_of, walk, walk_statements

KERNEL = """template k(x: f32[], n: i32) {
  array t f32(4)
  parallel i in (0, dim(x, 0), 1) {
    %v = x[%i]
    for %j in (0, $n, 1) {
      t[%j] = mul(%v, 2.0)
      if lt(%v, 1.0) {
        print "v", %v, " of ", t[%j]
        continue
      }
      block body {
        x[add(%i, %j)] = select(%v, t[0], neg(%v))
        leave body
      }
    }
    %old = atomic_add x[0], %v
  }
}"""


@pytest.fixture(scope="module")
def kernel() -> ir.Kernel:
    return parse(KERNEL)


def in_order(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for child in children(node):
        yield from in_order(child)


def test_walk_is_in_order(kernel: ir.Kernel) -> None:
    found = walk(kernel)
    assert [id(node) for node in found] == [id(node) for node in in_order(kernel)]
    assert all(isinstance(node, ir.Node) for node in found)  # no string of a print is among them


def test_statements_are_walked_in_the_same_order(kernel: ir.Kernel) -> None:
    kinds = (ir.Kernel, ir.Parallel, ir.Stmt)
    expected = [node for node in in_order(kernel) if isinstance(node, kinds)]
    assert [id(node) for node in walk_statements(kernel)] == [id(node) for node in expected]


def test_nodes_of_a_class(kernel: ir.Kernel) -> None:
    for kind in {type(node) for node in in_order(kernel)} | {ir.Barrier}:
        expected = [id(node) for node in in_order(kernel) if type(node) is kind]
        assert [id(node) for node in nodes_of(kernel, kind)] == expected
    assert [node.array for node in accesses(kernel)] == ["x", "t", "t", "t", "x", "x"]
