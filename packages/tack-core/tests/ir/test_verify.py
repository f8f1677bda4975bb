"""Each invariant of the IR, broken once: the verifier says which and shows the node."""

from __future__ import annotations

import pytest
from hypothesis import given

from tack.dtypes import DType, f32, f64, i32, i64
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.traversal import Rewriter, replace, walk
from tack.ir.verify import VerificationError, verify

from .strategies import generated_kernels, kernels, templates

ONE, X = ir.Const(1, type=i64), ir.Const(1.5, type=f32)


def typed(body: str = "", before: str = "", after: str = "", head: str = "") -> ir.Kernel:
    """A typed kernel of which some statements are given as text."""
    return parse(
        f"""kernel k(x: f32[], y: i32[,], n: i64, u: u8, a: f32) -> {"f32" if "return" in after else "i64"} {{
        local b: f32
        local i: i64
        local j: i64
        local c: i32
        {head}
        table T (1, 2)
        {before}
        parallel i in (0, $n, 1) {{
        {body}
        }}
        {after or "return 0:i64"}
        }}"""
    )


def template(body: str = "", before: str = "", loop: str = "i in (0, $n, 1)") -> ir.Kernel:
    return parse(f"template k(x, n, p: f32[], q pin f32) {{\n{before}\nparallel {loop} {{\n{body}\n}}\n}}")


def with_statement(s: ir.Stmt, kernel: ir.Kernel | None = None) -> ir.Kernel:
    """A typed kernel whose parallel loop runs ``s``."""
    kernel = kernel or typed()
    return replace(kernel, loop=replace(kernel.loop, body=(s,)))


def with_expression(e: ir.Expr, kernel: ir.Kernel | None = None) -> ir.Kernel:
    """A typed kernel that prints ``e``."""
    return with_statement(ir.Print((e,)), kernel)


def refuse(kernel: ir.Kernel, message: str) -> str:
    """Checks the first line of the error, and returns the others."""
    with pytest.raises(VerificationError) as caught:
        verify(kernel)
    first, _, shown = str(caught.value).partition("\n")
    assert first == f"kernel 'k': {message}"
    return shown


def test_the_kernels_that_are_broken_here_are_valid() -> None:
    verify(typed())
    verify(template())
    verify(template("%y = add($p, q[0])"))  # type inference reports this mistake
    verify(with_expression(ir.Binary("add", ONE, ONE, type=i64)))
    verify(typed("array t f32(2:i64)\n t[0:i64] = $a\n %b = atomic_add x[%i], 1.5:f32", after="return %b"))


def test_the_error_is_a_runtime_error() -> None:
    assert issubclass(VerificationError, RuntimeError)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        # Names.
        (template("%y = %z"), "local 'z' is read but never assigned"),
        (typed("print %j"), "local 'j' is read but never assigned"),
        (template("%y = $z"), "'z' is not a scalar parameter"),
        (with_expression(ir.Param("x", type=f32)), "'x' is not a scalar parameter"),
        (with_expression(ir.Load("a", (ONE,), type=f32)), "'a' is not a declared array"),
        (template("%y = z[0]"), "'z' is not a declared array"),
        (typed("a[%i] = $a"), "'a' is not a declared array"),
        (template("z[0] = 1"), "'z' is not a declared array"),
        (template("%y = dim(z, 0)"), "'z' is not a declared array"),
        (template("z[0] = 1\narray z f32(2)"), "'z' is not a declared array"),
        (template("%y = lookup(T, 0)"), "'T' is not a table of the kernel"),
        (template("%x = 1"), "'x' is assigned as a local, but is a parameter, array or table"),
        (
            template("array t f32(1)\n%t = 1"),
            "'t' is assigned as a local, but is a parameter, array or table",
        ),
        (typed(head="local x: f32"), "the name 'x' is declared twice"),
        (typed(head="local T: f32"), "the name 'T' is declared twice"),
        (
            template("array x f32(1)"),
            "array 'x' has the name of another array, parameter or table",
        ),
        (
            template("array t f32(1)\narray t f32(1)"),
            "array 't' has the name of another array, parameter or table",
        ),
        (typed("array b f32(1:i64)"), "array 'b' has the name of a local, or none"),
        (parse("template k(x, x) {\nparallel i in (0, 1, 1) {\n}\n}"), "the name 'x' is declared twice"),
        (
            template(loop="i in (0, 1, 1), i in (0, 1, 1)"),
            "the parallel loop has 1 to 6 distinct variables, with a range each",
        ),
        # Control flow.
        (template("break"), "a break outside a sequential loop"),
        (template("while 1 {\n}\nbreak"), "a break outside a sequential loop"),
        (template(before="break"), "a break outside a sequential loop"),
        (typed(after="continue\nreturn $a"), "a continue outside a loop"),
        (template(before="continue"), "a continue outside a loop"),
        (template("leave f"), "leave names no enclosing block 'f'"),
        (template("block f {\n}\nleave f"), "leave names no enclosing block 'f'"),
        (
            template("block f {\nblock f {\n}\n}"),
            "block 'f' has the label of an enclosing one, or none",
        ),
        # Effects.
        (template(before="x[0] = 1"), "an effect outside the parallel loop"),
        (template(before="atomic_add x[0], 1"), "an effect outside the parallel loop"),
        (typed(after='print "a"\nreturn 0.5:f32'), "an effect outside the parallel loop"),
        # Atomics.
        (with_statement(ir.Atomic(None, "inc", "x", (ONE,), (X,))), "'inc' is not an atomic operation"),
        (template("atomic_add x[0], 1, 2"), "atomic_add with 2 operands"),
        (template("atomic_cas x[0], 1"), "atomic_cas with 1 operands"),
        (typed("atomic_xor x[%i], $a"), "atomic_xor on f32"),
        (
            template("array t f32(2)\natomic_add t[0], 1"),
            "the target of an atomic, 't', is not a parameter",
        ),
        (typed("atomic_add x[%i], 1:i32"), "a value of type i32 for array 'x' of f32"),
        (typed("%c = atomic_add x[%i], $a"), "local 'c' is i32, its new value f32"),
        # Statements of a typed kernel.
        (typed("%c = 1:i64"), "local 'c' is i32, its new value i64"),
        (typed("%d = 1:i64"), "local 'd' is not declared"),
        (typed("for %c in (0:i64, 1:i64, 1:i64) {\n}"), "local 'c' is i32, its new value i64"),
        (typed("for %j in (0:i32, 1:i64, 1:i64) {\n}"), "the range of a for loop is i64"),
        (typed("x[%i] = 1.0:f64"), "a value of type f64 for array 'x' of f32"),
        (typed("x[0:i32] = $a"), "an access of a typed kernel has one i64 index"),
        (typed("print y[%i, %i]"), "an access of a typed kernel has one i64 index"),
        (typed("print x[]"), "an access of a typed kernel has one i64 index"),
        (typed("array t f32(%i)"), "the extents of a local array are i64 constants"),
        (typed("array t f32(2:i32)"), "the extents of a local array are i64 constants"),
        (typed("array t f32(-1:i64)"), "the extents of a local array are i64 constants"),
        (typed("array t f32()"), "a local array has one dimension or more"),
        (typed("print dim(x, 0)"), "an extent in a typed kernel is a constant"),
        (typed("print lookup.f32(T, 0:i32)"), "the index of a table is i64"),
        (typed("print 1:f32"), "a constant of type f32 is a float"),
        (typed("print 1.0:i32"), "a constant of type i32 is an int"),
        (typed("print 256:u8"), "u8 does not hold this constant"),
        (typed("print 0.1:f32"), "an f32 constant that is not rounded"),
        (typed("print 1e+300:f32"), "an f32 constant that is not rounded"),
        # Operand types.
        (typed("print add(%i, $u)"), "operands of different types: i64, u8"),
        (typed("print shl(%i, $u)"), "operands of different types: i64, u8"),
        (typed("print lt(%i, $a)"), "operands of different types: i64, f32"),
        (typed("print select(1:i32, %i, $a)"), "operands of different types: i64, f32"),
        (typed("print call.max(%i, %i, $u)"), "operands of different types: i64, i64, u8"),
        (typed("print call.where($u, %i, $a)"), "operands of different types: i64, f32"),
        (typed("print pow(%i, 2:i32)"), "the exponent of an integer power is i64 or u64"),
        (typed("print pow($a, 2.0:f64)"), "operands of different types: f32, f64"),
        (typed("print div(%i, %i)"), "an operation on floats, applied to i64"),
        (typed("print bitand($a, $a)"), "an operation on integers, applied to f32"),
        (typed("print shr($a, $a)"), "an operation on integers, applied to f32"),
        (typed("print invert($a)"), "an operation on integers, applied to f32"),
        (typed("print call.sin(%i)"), "an operation on floats, applied to i64"),
        (typed("print call.clz($a)"), "an operation on integers, applied to f32"),
        (typed("print bitcast.f32(%i)"), "a bitcast of i64 to f32, of another width"),
        # Expressions whose types are not what their parts make them.
        (with_expression(ir.Binary("add", ONE, ONE)), "an expression of a typed kernel without a type"),
        (
            with_expression(ir.Binary("add", ONE, ONE, type=i32)),
            "an expression of type i32 whose parts make it i64",
        ),
        (
            with_expression(ir.Compare("lt", X, X, type=f32)),
            "an expression of type f32 whose parts make it i32",
        ),
        (
            with_expression(ir.Logical("or", X, X, type=f32)),
            "an expression of type f32 whose parts make it i32",
        ),
        (with_expression(ir.Unary("not", X, type=f32)), "an expression of type f32 whose parts make it i32"),
        (with_expression(ir.Cast(X, f64, type=f32)), "an expression of type f32 whose parts make it f64"),
        (
            with_expression(ir.Call("isnan", (X,), type=f32)),
            "an expression of type f32 whose parts make it i32",
        ),
        (with_expression(ir.Param("a", type=f64)), "parameter 'a' is f32, read as f64"),
        (with_expression(ir.Local("i", type=f64)), "local 'i' is i64, read as f64"),
        (with_expression(ir.Load("x", (ONE,), type=f64)), "array 'x' is f32, read as f64"),
        # What only a kernel that no text describes can have.
        (with_expression(ir.Const(True, type=i64)), "a constant is an int or a float, not bool"),
        (with_expression(ir.Binary("plus", ONE, ONE, type=i64)), "'plus' is not an operator of Binary"),
        (with_expression(ir.Unary("plus", ONE, type=i64)), "'plus' is not an operator of Unary"),
        (with_expression(ir.Compare("is", ONE, ONE, type=i32)), "'is' is not an operator of Compare"),
        (with_expression(ir.Logical("xor", ONE, ONE, type=i32)), "'xor' is not an operator of Logical"),
        (with_expression(ir.Call("sine", (X,), type=f32)), "'sine' is not a builtin function"),
        (with_expression(ir.Call("sin", (X, X), type=f32)), "call.sin with 2 arguments"),
        (with_expression(ir.Call("max", (X,), type=f32)), "call.max with 1 arguments"),
        (with_expression(ir.Dim("x", "width"), template()), "'width' is not an axis"),
    ],
)
def test_a_broken_invariant_is_named(kernel: ir.Kernel, message: str) -> None:
    refuse(kernel, message)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (replace(template(), locals={"v": i64}), "a template declares no locals"),
        (replace(typed(), params=(ir.Parameter("n"),)), "parameter 'n' of a typed kernel has no type"),
        (replace(typed(), result=None), "a result and its type come together"),
        (replace(typed(), result_type=None), "a result and its type come together"),
        (replace(typed(), tables={"T": ir.Table(())}), "table 'T' is empty"),
        (
            replace(typed(), params=(ir.Parameter("x", ir.Array(f32, -1)),)),
            "array parameter 'x' is pinned or has no valid ndim",
        ),
        (
            replace(typed(), params=(ir.Parameter("x", ir.Array(f32, 1), f32),)),
            "array parameter 'x' is pinned or has no valid ndim",
        ),
        (
            with_expression(ir.Break()),
            "Break is not an expression",
        ),
        (replace(typed(), before=(ONE,)), "Const is not a statement"),
        (replace(typed(), before=(ir.Assign("j", ir.Break()),)), "Break is not an expression"),
        (replace(template(), before=(ir.Assign("2j", ONE),)), "'2j' is not a name"),
        (
            replace(typed(), locals={"a b": i64}),
            "'a b' is not a name: letters, digits, _ and ., and a letter or _ first",
        ),
        (
            replace(typed(), loop=ir.Parallel((), (), ())),
            "the parallel loop has 1 to 6 distinct variables, with a range each",
        ),
        (
            replace(typed(), before=(ir.Block("a b", ()),)),
            "block 'a b' has the label of an enclosing one, or none",
        ),
    ],
)
def test_a_broken_declaration_is_named(kernel: ir.Kernel, message: str) -> None:
    refuse(kernel, message)


def test_the_node_is_shown() -> None:
    assert refuse(typed("x[%i] = 1.0:f64"), "a value of type f64 for array 'x' of f32") == "  x[%i] = 1.0:f64"
    assert refuse(typed("%b = add(%i, 1:i32)"), "operands of different types: i64, i32") == "  add(%i, 1:i32)"


@pytest.mark.parametrize("dtype", [f32, f64, i32])
def test_infinite_and_nan_constants_are_representable_in_floats(dtype: DType) -> None:
    for value in (float("inf"), float("-inf"), float("nan")):
        kernel = with_expression(ir.Const(value, type=dtype))
        if dtype.is_float:
            verify(kernel)
        else:
            refuse(kernel, "a constant of type i32 is an int")


def test_ranges_of_the_parallel_loop_keep_template_form() -> None:
    kernel = parse(
        """kernel k(x: f32[,], n: i32) {
        local i: i64
        parallel i in (neg($n), add(dim(x, -1), 1), 2) {
        }
        }"""
    )
    verify(kernel)
    stop = kernel.loop.ranges[0].stop
    assert stop.type is None
    assert to_text(stop) == "add(dim(x, -1), 1)"


class _Swap(Rewriter):
    """Puts a local that is never assigned in the place of one node."""

    def __init__(self, old: ir.Expr) -> None:
        super().__init__()
        self.old = old

    def visit(self, node: ir.Node) -> ir.Node:
        if node is self.old:
            return ir.Local("nowhere", type=self.old.type)
        found: ir.Node = super().visit(node)
        return found


@generated_kernels
@given(kernels(workgroups=True) | templates())
def test_every_expression_is_visited(kernel: ir.Kernel) -> None:
    verify(kernel)
    for old in walk(kernel):
        if isinstance(old, ir.Expr):
            with pytest.raises(VerificationError):
                verify(_Swap(old).visit(kernel))
