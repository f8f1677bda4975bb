"""LLVM IR as text, built line by line.

The names are those of llvmlite.ir, which builds a tree of objects and prints it at the end; this writes each
instruction once, when it is built. Nothing is checked: LLVM's parser does that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

__all__ = [
    "ArrayType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionPointer",
    "FunctionType",
    "IRBuilder",
    "InlineAsm",
    "Instruction",
    "IntType",
    "Metadata",
    "Module",
    "Phi",
    "PointerType",
    "Rule",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
]


# --- types ----------------------------------------------------------------------------------------------


class Type:
    """A type; ``element`` and ``count`` are those of a vector or array."""

    __slots__ = ("count", "element", "text")

    def __init__(self, text: str, element: Type | None = None, count: int = 0) -> None:
        self.text = text
        self.element = element
        self.count = count

    def __str__(self) -> str:
        return self.text


@cache
def IntType(bits: int) -> Type:
    return Type(f"i{bits}")


@cache
def VectorType(element: Type, count: int) -> Type:
    return Type(f"<{count} x {element}>", element, count)


@cache
def ArrayType(element: Type, count: int) -> Type:
    return Type(f"[{count} x {element}]", element, count)


_FLOAT: Final = Type("float")
_DOUBLE: Final = Type("double")
_VOID: Final = Type("void")
_POINTER: Final = Type("ptr")
_FLAG: Final = IntType(1)


def FloatType() -> Type:
    return _FLOAT


def DoubleType() -> Type:
    return _DOUBLE


def VoidType() -> Type:
    return _VOID


def PointerType() -> Type:
    return _POINTER


class FunctionType:
    """What a function takes and gives."""

    __slots__ = ("args", "return_type")

    def __init__(self, return_type: Type, args: Iterable[Type]) -> None:
        self.return_type = return_type
        self.args = tuple(args)


# --- values ---------------------------------------------------------------------------------------------


class Value:
    """Something that an instruction can take: its type, and how the text refers to it."""

    __slots__ = ("text", "type")

    def __init__(self, kind: Type, text: str) -> None:
        self.type = kind
        self.text = text

    @property
    def operand(self) -> str:
        return f"{self.type.text} {self.text}"


Undefined: Final = object()


class Constant(Value):
    """A number, a list of constants for an array or vector, or `Undefined`."""

    __slots__ = ("constant",)

    def __init__(self, kind: Type, constant: Any) -> None:
        super().__init__(kind, _constant_text(kind, constant))
        self.constant = constant


def _constant_text(kind: Type, constant: Any) -> str:
    if constant is Undefined:
        return "undef"
    if kind.element is not None:
        left, right = kind.text[0], kind.text[-1]
        return left + ", ".join(part.operand for part in constant) + right
    if kind is _FLOAT or kind is _DOUBLE:
        number = struct.unpack("f", struct.pack("f", constant))[0] if kind is _FLOAT else constant
        return f"0x{struct.pack('>d', number).hex()}"
    if kind is _FLAG:
        return "true" if constant else "false"
    return str(constant)


class Argument(Value):
    """A parameter of the function that is built."""

    __slots__ = ("attributes",)

    def __init__(self, kind: Type, text: str) -> None:
        super().__init__(kind, text)
        self.attributes = ""

    def add_attribute(self, name: str) -> None:
        self.attributes += f" {name}"


class InlineAsm:
    """Assembly text to call."""

    __slots__ = ("signature", "text")

    def __init__(self, signature: FunctionType, text: str, constraints: str) -> None:
        self.signature = signature
        self.text = f'asm "{text}", "{constraints}"'


class FunctionPointer(Value):
    """A pointer to call as a function of ``signature``."""

    __slots__ = ("signature",)

    def __init__(self, pointer: Value, signature: FunctionType) -> None:
        super().__init__(pointer.type, pointer.text)
        self.signature = signature


class Metadata:
    """A node of metadata, by its number."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Instruction(Value):
    """A line of a block, and its value if it has one."""

    __slots__ = ("_at", "_block", "callee", "operands", "opname")

    def __init__(
        self, block: Block, kind: Type, text: str, opname: str, operands: Sequence[Value], callee: str = ""
    ) -> None:
        self.type = kind
        self.text = text
        self._block = block
        self._at = len(block.lines)
        self.opname = opname
        self.operands = operands
        self.callee = callee

    def set_metadata(self, kind: str, node: Metadata) -> None:
        self._block.lines[self._at] += f", !{kind} {node.text}"  # type: ignore[operator]

    def set_weights(self, weights: Sequence[int]) -> None:
        """How often a branch goes either way."""
        i32 = IntType(32)
        parts: list[str | Metadata | Constant] = ["branch_weights"]
        parts += [Constant(i32, weight) for weight in weights]
        self.set_metadata("prof", self._block.function.module.add_metadata(parts))


class Phi(Value):
    """A value that depends on which block was left last."""

    __slots__ = ("_incoming",)

    def __init__(self, kind: Type, text: str) -> None:
        super().__init__(kind, text)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        self._incoming.append(f"[ {value.text}, {block.text} ]")

    def __str__(self) -> str:
        return f"  {self.text} = phi {self.type.text} {', '.join(self._incoming)}"


# --- functions and modules ------------------------------------------------------------------------------


class Block:
    """A list of instructions with one way in; after a terminator it takes no more."""

    __slots__ = ("function", "is_terminated", "lines", "name", "text")

    def __init__(self, function: Function, name: str) -> None:
        self.function = function
        self.name = name
        self.text = f'%"{name}"'
        self.lines: list[str | Phi] = []
        self.is_terminated = False


class Function(Value):
    """A function of a module: declared only, unless it gets blocks."""

    __slots__ = ("_count", "_names", "args", "attributes", "blocks", "linkage", "module", "name", "signature")

    def __init__(self, module: Module, signature: FunctionType, name: str) -> None:
        super().__init__(_POINTER, f'@"{name}"')
        self.module = module
        self.signature = signature
        self.name = name
        self.args = [Argument(kind, f"%.a{k}") for k, kind in enumerate(signature.args)]
        self.attributes: dict[str, None] = {}  # in order
        self.linkage = ""
        self.blocks: list[Block] = []
        self._names: set[str] = set()
        self._count = 0
        module.globals[name] = self

    def append_basic_block(self, name: str = "entry") -> Block:
        block = Block(self, self.unique(name))
        self.blocks.append(block)
        return block

    def unique(self, name: str) -> str:
        """``name``, with a number if the function has it already."""
        found, count = name, 0
        while found in self._names:
            count += 1
            found = f"{name}.{count}"
        self._names.add(found)
        return found

    def new_name(self) -> str:
        self._count += 1
        return f"%.{self._count}"  # which no local is called

    def __str__(self) -> str:
        given = self.signature.return_type.text
        attributes = "".join(f" {name}" for name in self.attributes)
        if not self.blocks:
            kinds = ", ".join(arg.type.text for arg in self.args)
            return f"declare {given} {self.text}({kinds}){attributes}\n"
        args = ", ".join(f"{arg.type.text}{arg.attributes} {arg.text}" for arg in self.args)
        head = (
            f"define {self.linkage}{' ' if self.linkage else ''}{given} {self.text}({args}){attributes}\n{{"
        )
        lines = [head]
        for block in self.blocks:
            lines.append(f'"{block.name}":')
            lines.extend(map(str, block.lines))
        lines.append("}\n")
        return "\n".join(lines)


class Module:
    """Functions, constant tables and metadata; its string is the text for LLVM."""

    __slots__ = ("_definitions", "_metadata", "globals", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.globals: dict[str, Function] = {}
        self._metadata: dict[str, Metadata] = {}
        self._definitions: list[str] = []

    def add_global(self, name: str, definition: str) -> Value:
        """A global variable; ``definition`` is what comes behind the equals sign."""
        self._definitions.append(f'@"{name}" = {definition}')
        return Value(_POINTER, f'@"{name}"')

    def add_metadata(self, parts: Iterable[str | Metadata | Constant]) -> Metadata:
        """The node with these parts; strings, nodes and constants."""
        texts = [
            f'!"{p}"' if isinstance(p, str) else p.text if isinstance(p, Metadata) else p.operand
            for p in parts
        ]
        content = "!{ " + ", ".join(texts) + " }"
        found = self._metadata.get(content)
        if found is None:
            found = self._metadata[content] = Metadata(f"!{len(self._metadata)}")
        return found

    def __str__(self) -> str:
        nodes = [f"{node.text} = {content}" for content, node in self._metadata.items()]
        name = self.name.replace("\\", "\\5c").replace('"', "\\22")
        return "\n".join(
            [f'; ModuleID = "{name}"', *self._definitions, *map(str, self.globals.values()), *nodes, ""]
        )


# --- the builder ----------------------------------------------------------------------------------------

_SIGNED: Final = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED: Final = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}
_FLOATS: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

Flags = Iterable[str]


Rule: TypeAlias = "Callable[..., Instruction]"


def _binary(opname: str) -> Rule:
    def build(self: IRBuilder, left: Value, right: Value, flags: Flags = ()) -> Instruction:
        words = f"{opname} {' '.join(flags)}" if flags else opname
        kind = left.type
        return self._value(kind, opname, f"{words} {kind.text} {left.text}, {right.text}", (left, right))

    return build


def _cast(opname: str) -> Rule:
    def build(self: IRBuilder, value: Value, kind: Type) -> Instruction:
        return self._value(kind, opname, f"{opname} {value.operand} to {kind.text}", (value,))

    return build


class IRBuilder:
    """Appends instructions to a block."""

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    @property
    def module(self) -> Module:
        return self.block.function.module

    def position_at_end(self, block: Block) -> None:
        self.block = block

    def _value(
        self, kind: Type, opname: str, text: str, operands: Sequence[Value], callee: str = ""
    ) -> Instruction:
        block = self.block
        name = block.function.new_name()
        made = Instruction(block, kind, name, opname, operands, callee)
        block.lines.append(f"  {name} = {text}")
        return made

    def _line(self, opname: str, text: str) -> Instruction:
        made = Instruction(self.block, _VOID, "", opname, ())
        self.block.lines.append(f"  {text}")
        return made

    def _end(self, opname: str, text: str) -> Instruction:
        made = self._line(opname, text)
        self.block.is_terminated = True
        return made

    # Of two operands of one type.
    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    udiv, sdiv, urem, srem = _binary("udiv"), _binary("sdiv"), _binary("urem"), _binary("srem")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, ashr, lshr = _binary("shl"), _binary("ashr"), _binary("lshr")
    fadd, fsub, fmul, fdiv = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")

    # Of a value and the type to give.
    zext, sext, trunc = _cast("zext"), _cast("sext"), _cast("trunc")
    fpext, fptrunc, bitcast = _cast("fpext"), _cast("fptrunc"), _cast("bitcast")
    sitofp, uitofp, ptrtoint = _cast("sitofp"), _cast("uitofp"), _cast("ptrtoint")

    def neg(self, value: Value) -> Instruction:
        return self._value(value.type, "sub", f"sub {value.type.text} 0, {value.text}", (value,))

    def not_(self, value: Value) -> Instruction:
        ones = "true" if value.type is _FLAG else "splat (i1 true)" if value.type.element is _FLAG else "-1"
        return self._value(value.type, "xor", f"xor {value.operand}, {ones}", (value,))

    def fneg(self, value: Value) -> Instruction:
        return self._value(value.type, "fneg", f"fneg {value.operand}", (value,))

    def freeze(self, value: Value) -> Instruction:
        return self._value(value.type, "freeze", f"freeze {value.operand}", (value,))

    # --- comparisons and choices ---

    def _compare(self, opname: str, predicate: str, left: Value, right: Value) -> Instruction:
        count = left.type.count
        kind = VectorType(_FLAG, count) if count else _FLAG
        text = f"{opname} {predicate} {left.type.text} {left.text}, {right.text}"
        return self._value(kind, opname, text, (left, right))

    def icmp_signed(self, sign: str, left: Value, right: Value) -> Instruction:
        return self._compare("icmp", _SIGNED[sign], left, right)

    def icmp_unsigned(self, sign: str, left: Value, right: Value) -> Instruction:
        return self._compare("icmp", _UNSIGNED[sign], left, right)

    def fcmp_ordered(self, sign: str, left: Value, right: Value) -> Instruction:
        """False if either is NaN."""
        return self._compare("fcmp", f"o{_FLOATS[sign]}", left, right)

    def fcmp_unordered(self, sign: str, left: Value, right: Value) -> Instruction:
        """True if either is NaN; ``"uno"`` is only that."""
        return self._compare("fcmp", sign if sign == "uno" else f"u{_FLOATS[sign]}", left, right)

    def select(self, chosen: Value, then: Value, orelse: Value) -> Instruction:
        text = f"select {chosen.operand}, {then.operand}, {orelse.operand}"
        return self._value(then.type, "select", text, (chosen, then, orelse))

    def phi(self, kind: Type) -> Phi:
        made = Phi(kind, self.block.function.new_name())
        self.block.lines.append(made)
        return made

    # --- control ---

    def branch(self, target: Block) -> Instruction:
        return self._end("br", f"br label {target.text}")

    def cbranch(self, chosen: Value, then: Block, orelse: Block) -> Instruction:
        return self._end("br", f"br {chosen.operand}, label {then.text}, label {orelse.text}")

    def ret(self, value: Value) -> Instruction:
        return self._end("ret", f"ret {value.operand}")

    def ret_void(self) -> Instruction:
        return self._end("ret", "ret void")

    def call(
        self,
        function: Function | FunctionPointer | InlineAsm,
        args: Sequence[Value],
        fastmath: Flags = (),
    ) -> Instruction:
        flags = "".join(f"{flag} " for flag in fastmath)
        given = function.signature.return_type
        name = function.name if isinstance(function, Function) else ""
        operands = ", ".join([f"{a.type.text} {a.text}" for a in args])
        text = f"call {flags}{given.text} {function.text}({operands})"
        if given is _VOID:
            return self._line("call", text)
        return self._value(given, "call", text, args, name)

    # --- memory ---

    def alloca(self, kind: Type, name: str = "") -> Instruction:
        block = self.block
        text = f'%"{block.function.unique(name)}"' if name else block.function.new_name()
        made = Instruction(block, _POINTER, text, "alloca", ())
        block.lines.append(f"  {text} = alloca {kind.text}")
        return made

    def load(self, address: Value, align: int | None = None, *, typ: Type, name: str = "") -> Instruction:
        where = f", align {align}" if align else ""
        return self._value(typ, "load", f"load {typ.text}, ptr {address.text}{where}", (address,))

    def store(self, value: Value, address: Value, align: int | None = None) -> Instruction:
        where = f", align {align}" if align else ""
        return self._line("store", f"store {value.operand}, ptr {address.text}{where}")

    def gep(
        self, base: Value, indices: Sequence[Value], inbounds: bool = False, *, source_etype: Type
    ) -> Instruction:
        words = "getelementptr inbounds" if inbounds else "getelementptr"
        at = "".join([f", {index.operand}" for index in indices])
        text = f"{words} {source_etype.text}, ptr {base.text}{at}"
        return self._value(_POINTER, "getelementptr", text, (base, *indices))

    def load_atomic(self, address: Value, ordering: str, align: int, *, typ: Type) -> Instruction:
        text = f"load atomic {typ.text}, ptr {address.text} {ordering}, align {align}"
        return self._value(typ, "load", text, (address,))

    def atomic_rmw(self, op: str, address: Value, value: Value, ordering: str) -> Instruction:
        text = f"atomicrmw {op} ptr {address.text}, {value.operand} {ordering}"
        return self._value(value.type, "atomicrmw", text, (address, value))

    def cmpxchg(self, address: Value, old: Value, new: Value, success: str, failure: str) -> Instruction:
        """The value that was there, and whether it was the old one."""
        text = f"cmpxchg ptr {address.text}, {old.operand}, {new.operand} {success} {failure}"
        pair = Type(f"{{ {old.type.text}, i1 }}", old.type, 2)
        return self._value(pair, "cmpxchg", text, (address, old, new))

    def extract_value(self, pair: Value, index: int) -> Instruction:
        kind = _FLAG if index else pair.type.element
        assert kind is not None
        return self._value(kind, "extractvalue", f"extractvalue {pair.operand}, {index}", (pair,))

    def extract_element(self, vector: Value, index: Value) -> Instruction:
        assert vector.type.element is not None
        text = f"extractelement {vector.operand}, {index.operand}"
        return self._value(vector.type.element, "extractelement", text, (vector, index))

    def insert_element(self, vector: Value, value: Value, index: Value) -> Instruction:
        text = f"insertelement {vector.operand}, {value.operand}, {index.operand}"
        return self._value(vector.type, "insertelement", text, (vector, value, index))
