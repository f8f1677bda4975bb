"""The state of one LLVM function while it is built, and what all rules share.

Rules live in tables by node class, operator or function name: `expressions.VALUES`,
`operators.UNARY` and `BINARY`, `builtins.CALLS`, `statements.STATEMENTS`. Each rule takes the
`Emitter` first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tack.codegen.fusing import fused_locals
from tack.codegen.llvm import ir
from tack.codegen.llvm.operators import convert
from tack.codegen.llvm.types import LLVM_TYPES, constant
from tack.dtypes import DType, i64
from tack.ir.nodes import Kernel
from tack.ir.workgroups import WORKGROUP
from tack.record import Record

__all__ = ["Emitter", "Jump", "Unit"]

# Under fastmath=True. Without nnan and ninf, which would let LLVM remove isnan and isinf.
_FAST_FLAGS = ("reassoc", "nsz", "arcp", "contract", "afn")


class Unit:
    """One LLVM module: its declarations and the helper functions that it uses so far."""

    def __init__(
        self, kernel: Kernel, sites: dict[int, int], vector_bits: int, single: Collection[str] = ()
    ) -> None:
        self.kernel = kernel
        self.single = single  # the locals that are plain values, see `tack.codegen.single`
        self.vector_bits = vector_bits  # of the registers for `vector_math`; 0 where it cannot be used
        self.sites = sites  # id(Print statement) -> site number
        self.module = ir.Module(name=kernel.name)
        self.flags = _FAST_FLAGS if kernel.fastmath else ()
        # Under fastmath=True LLVM fuses, which knows `fmul` and `fadd` better than `llvm.fma`.
        self.fuses = bool(vector_bits) and not kernel.fastmath
        self.fused = fused_locals(kernel, single) if self.fuses else ()
        self._functions: dict[str, ir.Function] = {}
        self._tables: dict[str, ir.Value] = {}

    def finish(self) -> None:
        """What a whole module needs: vector forms, which only the vectorizer will call, must stay in it."""
        if any(name.startswith("tack.math.") for name in self.module.globals):
            from tack.codegen.llvm import vector_math

            vector_math.keep(self.module)

    def declare(self, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Function:
        """The external function ``name``, which reads and writes no memory and returns."""
        function = self._functions.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, args), name)
            if not name.startswith("llvm."):
                function.attributes |= dict.fromkeys(("nounwind", "readnone", "willreturn"))
            self._functions[name] = function
        return function

    def helper(
        self, name: str, result: ir.Type, args: Sequence[ir.Type], build: Callable[[Emitter], None]
    ) -> ir.Function:
        """The internal function ``name``, made by ``build`` when first asked for."""
        function = self._functions.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, args), name)
            function.linkage = "internal"
            function.attributes["nounwind"] = None
            self._functions[name] = function
            emitter = Emitter(self, function)
            build(emitter)
            emitter.finish()
        return function

    def table(self, name: str, dtype: DType) -> ir.Value:
        """The constant table ``name`` with its values converted to ``dtype``."""
        symbol = f"table.{name}.{dtype}"
        found = self._tables.get(symbol)
        if found is None:
            from tack.ir.semantics import convert as convert_number

            values = [constant(dtype, convert_number(v, dtype)) for v in self.kernel.tables[name].values]
            kind = ir.ArrayType(LLVM_TYPES[dtype], len(values))
            table = ir.Constant(kind, values)
            found = self._tables[symbol] = self.module.add_global(
                symbol, f"internal constant {table.operand}"
            )
        return found


class Jump(Record):
    """Where ``continue`` and ``break`` go in a loop; the parallel loop has no ``break``."""

    on_continue: ir.Block
    on_break: ir.Block | None


class Emitter:
    """Builds one function: the builder, and where the kernel's names are."""

    def __init__(self, unit: Unit, function: ir.Function) -> None:
        self.unit = unit
        self.function = function
        self._entry = ir.IRBuilder(function.append_basic_block("entry"))
        self._start = function.append_basic_block("start")
        self.builder = ir.IRBuilder(self._start)
        self.scalars: dict[str, ir.Value] = {}
        self.arrays: dict[str, tuple[ir.Value, DType]] = {}
        # What LLVM is told of the accesses to an array: metadata by its kind.
        self.facts: dict[str, dict[str, Any]] = {}
        self.local_arrays: set[str] = set()
        # Where stores to an array go instead, while whole cache lines are computed.
        self.lines: dict[str, ir.Value] = {}
        # Arrays with room for each lane of a workgroup, whose lanes lie side by side.
        self.lane_arrays: set[str] = set()
        # The lane's number in its workgroup, in a kernel that uses workgroups: as i64, and as i32.
        self.lane: ir.Value | None = None
        self.lane_id: ir.Value | None = None
        self.loops: list[Jump] = []
        self.blocks: dict[str, ir.Block] = {}  # label -> the block after it
        self.print_callback: ir.FunctionPointer | None = None
        # The number of the current iteration, where checks need it.
        self.iteration: ir.Value | None = None
        self._locals: dict[str, tuple[ir.Value, DType]] = {}
        self._single = set(unit.single)
        self._values: dict[str, ir.Value] = {}
        self.numbers: set[int] = set()  # the ids of floats that are known not to be NaN
        self._factors: dict[str, tuple[ir.Value, ir.Value]] = {}

    def finish(self) -> None:
        """Ends the entry block, which holds the stack slots."""
        self._entry.branch(self._start)

    # --- blocks ---

    def block(self, name: str) -> ir.Block:
        return self.function.append_basic_block(name)

    def at(self, block: ir.Block) -> None:
        """Continues at the end of ``block``."""
        self.builder.position_at_end(block)

    def goto(self, block: ir.Block) -> None:
        """Jumps to ``block``, unless the current block has ended already."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    # --- locals ---

    def stack(self, kind: ir.Type, name: str = "") -> ir.Value:
        """A stack slot that is made once per call, whatever loop the builder is in."""
        return self._entry.alloca(kind, name=name)

    def in_memory(self, names: Iterable[str]) -> None:
        """Gives these locals stack slots from now on, though they are set in one place."""
        self._single.difference_update(names)

    def local(self, name: str) -> tuple[ir.Value, DType]:
        """The slot and type of a local variable that needs one. LLVM turns the slots into SSA values."""
        assert name not in self._single, name
        found = self._locals.get(name)
        if found is None:
            dtype = self.type_of(name)
            slot = self.stack(LLVM_TYPES[dtype], name)
            # A defined value even in IR that reads a local before assigning it.
            self._entry.store(constant(dtype, 0), slot)
            found = self._locals[name] = slot, dtype
        return found

    def type_of(self, name: str) -> DType:
        return self.unit.kernel.locals.get(name, i64)

    def assign(self, name: str, value: ir.Value, dtype: DType) -> None:
        """Sets a local, converting ``value`` from ``dtype`` if the local has another type."""
        value = convert(self, value, dtype, self.type_of(name))
        if name in self._single:
            self._values[name] = value
        else:
            self.builder.store(value, self.local(name)[0])

    def assign_product(self, name: str, left: ir.Value, right: ir.Value) -> None:
        """Sets a local that one sum reads to the product of these; see `is_fused`."""
        self._factors[name] = left, right

    def is_fused(self, name: str) -> bool:
        """Whether a local holds a product for the one sum that reads it."""
        return name in self.unit.fused and name in self._single

    def factors(self, name: str) -> tuple[ir.Value, ir.Value]:
        """Those of a local that `is_fused`."""
        return self._factors[name]

    def read(self, name: str) -> ir.Value:
        if name in self._factors:
            return self.builder.fmul(*self._factors[name])
        if name in self._single:
            return self._values[name]
        slot, dtype = self.local(name)
        return self.builder.load(slot, typ=LLVM_TYPES[dtype])

    # --- memory ---

    def element(self, array: str, at: ir.Value) -> tuple[ir.Value, DType]:
        """The address and type of element ``at`` of ``array``."""
        base, dtype = self.arrays[array]
        if array in self.lane_arrays:
            assert self.lane is not None
            at = self.builder.add(self.builder.mul(at, constant(i64, WORKGROUP)), self.lane)
        address = self.builder.gep(base, [at], inbounds=True, source_etype=LLVM_TYPES[dtype])
        return address, dtype

    def access(self, array: str, instruction: ir.Instruction) -> ir.Instruction:
        """``instruction``, which accesses an element of ``array``, with what is known of that."""
        for kind, fact in self.facts.get(array, {}).items():
            instruction.set_metadata(kind, fact)
        return instruction

    def freeze(self, value: ir.Value) -> ir.Value:
        """``value``, or some fixed value if it is undefined, as the contents of a new local array."""
        return self.builder.freeze(value)

    # --- calls ---

    def intrinsic(self, name: str, dtype: DType, *args: ir.Value, fast: bool = False) -> ir.Value:
        """``llvm.<name>.<dtype>(args)``, all of whose float or integer operands have one type."""
        kind = LLVM_TYPES[dtype]
        suffix = f"f{dtype.bits}" if dtype.is_float else f"i{dtype.bits}"
        function = self.unit.declare(f"llvm.{name}.{suffix}", kind, [a.type for a in args])
        flags: Any = self.unit.flags if fast and dtype.is_float else ()
        return self.builder.call(function, args, fastmath=flags)

    def libm(self, name: str, dtype: DType, *args: ir.Value) -> ir.Value:
        """A function of the C library's ``math.h``, in the precision of ``dtype``."""
        kind = LLVM_TYPES[dtype]
        symbol = name if dtype.bits == 64 else f"{name}f"
        return self.builder.call(self.unit.declare(symbol, kind, [kind] * len(args)), args)

    def math(self, name: str, dtype: DType, *args: ir.Value) -> ir.Value:
        """A function of `vector_math`, or the C library's where there is none for this machine."""
        if self.unit.vector_bits:
            from tack.codegen.llvm import vector_math

            if vector_math.has(name):
                function = vector_math.declare(self.unit.module, name, dtype, self.unit.vector_bits)
                return self.builder.call(function, args)
        return self.libm(name, dtype, *args)
