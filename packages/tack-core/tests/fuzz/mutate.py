"""Mutations of a kernel's text, of its syntax tree and of its lines."""

from __future__ import annotations

import ast
import copy
import random
import warnings
from collections.abc import Callable, Iterator

from .corpus import sources

_TREES = [ast.parse(text) for text in sources()]
_EXPRESSIONS = [
    n for t in _TREES for n in ast.walk(t) if isinstance(n, ast.expr) and not isinstance(n, ast.Starred)
]
_STATEMENTS = [
    n
    for t in _TREES
    for f in t.body
    if isinstance(f, ast.FunctionDef)
    for n in ast.walk(f)
    if isinstance(n, ast.stmt)
]

NAMES = """
    x y k u n s i j m a b c v C W T square pick pair put tack math np kernel sin abs max print range
    undefined z
""".split()  # noqa: SIM905
CONSTANTS = [
    0,
    1,
    -1,
    2,
    7,
    2**31,
    2**32,
    2**63,
    2**64,
    -(2**63) - 1,
    0.0,
    -0.0,
    0.1,
    1e308,
    1e400,
    True,
    None,
    "text",
    b"b",
    1j,
    ...,
    10**30,
]
EXPRESSIONS = """
    x[i]; y[i, i]; y[i]; x[i, i]; x[0.5]; x[None]; x[x[0]]; x[-1]; x[:]; x; y.shape; y.shape[5];
    x.shape[i]; len(x); len(i); x.size; i.x; a.b.c; tack; tack.f64; tack.i8(3); tack.nothing(1);
    math.sin(1); math.nothing; np.zeros(3); print; range(3); square; square(1); square(); square(square);
    pick(1, x); pair(1); put(x, 0, 1); kernel(x, y, k, u, n, s); lambda: 1; [1, 2]; []; (1, 2); {1: 2};
    {1, 2}; 1 if x[0] else 2.0; [q for q in x]; f'{i}'; i is None; i in x; not x; -x; ~s; ~k[0];
    u[0] + k[0]; u[0] + 1; u[0] - i; 1 << 70; k[0] >> -1; 2 ** -1; k[0] ** k[1]; 0 // 0; 1 % 0;
    1.0 // 0.0; 1 < 2 < s; x[0] and u[0]; sum(x); min(1); max(); sin(); sin(1, 2); bitcast(s, tack.i32);
    where(1, 2); T[n]; T[0][0]; T; C; W; tack.atomic_add(k, 0, 1); tack.atomic_add(n, 0, 1);
    tack.atomic_cas(x, 0, 1, 2); tack.local_array(4, tack.i32); tack.local_array(n, tack.i32);
    tack.ndindex(2, 2); (w := 3); await_; x.sum(); x @ x; x[i][i]; (lambda q: q)(1); n(1); 3(1);
    'a' + 'b'; i.real; tack.constant(3); tack.barrier();
""".split(";")  # noqa: SIM905
STATEMENTS = """
break
continue
pass
return
return n
return 1, 2
del x
global G
nonlocal_ = 1
assert n
raise ValueError
import os
x = 3
n = x
i = i + 1
i += 0.5
v: int = 3
a, b = 1
a, b = 1, 2, 3
a, (b, c) = 1, (2, 3)
a = b = c = 1
*a, b = 1, 2
[a, b] = 1, 2
x[0], n = n, x[0]
x[0] = x
x.shape[0] = 3
C = C + 1
T[0] = 1
pair(1)
square(1)
1 + 1
'text'
...
kernel(x, y, k, u, n, s)
print(x)
print('a', end='')
tack.atomic_add(k, 0, 1)
arr = tack.local_array((2, 3), tack.u8)
for q in range(3): x[q] = q
for q in range(0, 3, 0): pass
for q in range(5, 0, -1): pass
for q in x: pass
for q, r in tack.ndindex(2, 2): x[q] = r
for q in tack.ndindex(): pass
for x[0] in range(3): pass
for q in range(x[0]): pass
while True: break
while 1: pass
while x[0] > 0: x[0] -= 1
if n: a = 1
if x: pass
with x: pass
try: pass
finally: pass
def inner(): return 1
class Inner: pass
yield 1
async_ = 1
match n:
  case 1: pass
""".strip().split("\n")


def _parsed_statements() -> list[ast.stmt]:
    text, found = "", []
    for line in STATEMENTS:
        text = f"{text}\n{line}" if text else line
        try:
            found += ast.parse(text).body
        except SyntaxError:
            continue  # the first line of a longer one
        text = ""
    return found


_ODD_STATEMENTS = _parsed_statements()
_ODD_EXPRESSIONS = [ast.parse(text.strip(), mode="eval").body for text in EXPRESSIONS if text.strip()]
_BINARY = [
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.MatMult,
]
_COMPARE = [ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.In]
_UNARY = [ast.USub, ast.UAdd, ast.Invert, ast.Not]


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [n for n in tree.body if isinstance(n, ast.FunctionDef)]


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """Every list of statements inside the functions."""
    found = []
    for function in _functions(tree):
        for node in ast.walk(function):
            found += [
                getattr(node, f)
                for f in ("body", "orelse", "finalbody")
                if isinstance(getattr(node, f, None), list) and getattr(node, f)
            ]
    return found


def _slots(tree: ast.Module) -> list[tuple[ast.AST, str, int | None]]:
    """Every place inside the bodies that holds an expression."""
    found: list[tuple[ast.AST, str, int | None]] = []
    for function in _functions(tree):
        for statement in function.body:
            for node in ast.walk(statement):
                for field, value in ast.iter_fields(node):
                    if isinstance(value, ast.expr):
                        found.append((node, field, None))
                    elif isinstance(value, list):
                        found += [
                            (node, field, k) for k, item in enumerate(value) if isinstance(item, ast.expr)
                        ]
    return found


def _get(slot: tuple[ast.AST, str, int | None]) -> ast.expr:
    node, field, index = slot
    value = getattr(node, field)
    return value if index is None else value[index]


def _set(slot: tuple[ast.AST, str, int | None], new: ast.expr) -> None:
    node, field, index = slot
    if index is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[index] = new


# --- mutations of the tree --------------------------------------------------------------------


def delete_statement(tree: ast.Module, rng: random.Random) -> None:
    block = rng.choice(_blocks(tree))
    del block[rng.randrange(len(block))]
    if not block:
        block.append(ast.Pass())


def insert_statement(tree: ast.Module, rng: random.Random) -> None:
    block = rng.choice(_blocks(tree))
    new = rng.choice(_ODD_STATEMENTS if rng.random() < 0.6 else _STATEMENTS)
    block.insert(rng.randrange(len(block) + 1), copy.deepcopy(new))


def duplicate_statement(tree: ast.Module, rng: random.Random) -> None:
    block = rng.choice(_blocks(tree))
    k = rng.randrange(len(block))
    block.insert(k, copy.deepcopy(block[k]))


def swap_statements(tree: ast.Module, rng: random.Random) -> None:
    a, b = rng.choice(_blocks(tree)), rng.choice(_blocks(tree))
    i, j = rng.randrange(len(a)), rng.randrange(len(b))
    first, second = copy.deepcopy(a[i]), copy.deepcopy(b[j])
    a[i], b[j] = second, first


def wrap_statement(tree: ast.Module, rng: random.Random) -> None:
    block = rng.choice(_blocks(tree))
    k = rng.randrange(len(block))
    condition = copy.deepcopy(rng.choice(_ODD_EXPRESSIONS))
    kind = rng.randrange(3)
    if kind == 0:
        block[k] = ast.If(condition, [block[k]], [])
    elif kind == 1:
        block[k] = ast.While(condition, [block[k]], [])
    else:
        target = ast.Name(rng.choice("ijmq"), ast.Store())
        count = ast.Call(ast.Name("range", ast.Load()), [condition], [])
        block[k] = ast.For(target, count, [block[k]], [])


def replace_expression(tree: ast.Module, rng: random.Random) -> None:
    slot = rng.choice(_slots(tree))
    pool = _ODD_EXPRESSIONS if rng.random() < 0.5 else _EXPRESSIONS
    _set(slot, copy.deepcopy(rng.choice(pool)))


def hoist_expression(tree: ast.Module, rng: random.Random) -> None:
    """Replaces an expression with a part of it, or nests it in another."""
    slot = rng.choice(_slots(tree))
    old = _get(slot)
    inner = [n for n in ast.walk(old) if isinstance(n, ast.expr)]
    if len(inner) > 1 and rng.random() < 0.5:
        _set(slot, copy.deepcopy(rng.choice(inner)))
        return
    other = copy.deepcopy(rng.choice(_ODD_EXPRESSIONS))
    new: ast.expr = rng.choice(
        [
            ast.BinOp(old, rng.choice(_BINARY)(), other),
            ast.UnaryOp(rng.choice(_UNARY)(), old),
            ast.Compare(old, [rng.choice(_COMPARE)()], [other]),
            ast.IfExp(other, old, copy.deepcopy(old)),
            ast.BoolOp(rng.choice((ast.And, ast.Or))(), [old, other]),
            ast.Call(ast.Name(rng.choice(NAMES), ast.Load()), [old], []),
            ast.Subscript(old, other, ast.Load()),
            ast.Tuple([old, other], ast.Load()),
            ast.Attribute(old, rng.choice(("shape", "x", "T", "f32")), ast.Load()),
        ]
    )
    _set(slot, new)


def change_operator(tree: ast.Module, rng: random.Random) -> None:
    nodes = [
        n
        for f in _functions(tree)
        for n in ast.walk(f)
        if isinstance(n, (ast.BinOp, ast.AugAssign, ast.Compare, ast.UnaryOp))
    ]
    if not nodes:
        return
    node = rng.choice(nodes)
    if isinstance(node, ast.Compare):
        node.ops[rng.randrange(len(node.ops))] = rng.choice(_COMPARE)()
    else:
        node.op = rng.choice(_UNARY if isinstance(node, ast.UnaryOp) else _BINARY)()


def change_name(tree: ast.Module, rng: random.Random) -> None:
    nodes = [
        n
        for f in _functions(tree)
        for s in f.body
        for n in ast.walk(s)
        if isinstance(n, (ast.Name, ast.Attribute))
    ]
    if not nodes:
        return
    node = rng.choice(nodes)
    if isinstance(node, ast.Name):
        node.id = rng.choice(NAMES)
    else:
        node.attr = rng.choice(
            ("shape", "size", "ndim", "sin", "i32", "pi", "nothing", "local_array", "atomic_add")
        )


def change_constant(tree: ast.Module, rng: random.Random) -> None:
    nodes = [n for f in _functions(tree) for n in ast.walk(f) if isinstance(n, ast.Constant)]
    if nodes:
        rng.choice(nodes).value = rng.choice(CONSTANTS)


def change_arguments(tree: ast.Module, rng: random.Random) -> None:
    calls = [n for f in _functions(tree) for s in f.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    if not calls:
        return
    call, kind = rng.choice(calls), rng.randrange(4)
    if kind == 0 and call.args:
        del call.args[rng.randrange(len(call.args))]
    elif kind == 1:
        call.args.append(copy.deepcopy(rng.choice(_ODD_EXPRESSIONS)))
    elif kind == 2 and call.args:
        call.args[0] = ast.Starred(call.args[0], ast.Load())
    else:
        call.keywords.append(ast.keyword(rng.choice(("a", "dtype", "step")), ast.Constant(1)))


TREE_MUTATIONS: list[Callable[[ast.Module, random.Random], None]] = [
    delete_statement,
    insert_statement,
    insert_statement,
    duplicate_statement,
    swap_statements,
    wrap_statement,
    replace_expression,
    replace_expression,
    hoist_expression,
    hoist_expression,
    change_operator,
    change_name,
    change_name,
    change_constant,
    change_arguments,
]


# --- mutations of the text --------------------------------------------------------------------


def change_text(text: str, rng: random.Random) -> str:
    """Changes the indentation or characters of one line of a body, or drops, doubles or moves it."""
    lines = text.split("\n")
    k = rng.choice([number for number, line in enumerate(lines) if line.startswith(" ")])
    kind = rng.randrange(6)
    if kind == 0:
        lines[k] = "    " + lines[k]
    elif kind == 1:
        lines[k] = lines[k].removeprefix("    ")
    elif kind == 2:
        del lines[k]
    elif kind == 3:
        lines.insert(k, lines[rng.randrange(len(lines))])
    elif kind == 4 and lines[k]:
        at = rng.randrange(len(lines[k]))
        lines[k] = (
            lines[k][:at] + rng.choice("()[]:,.+-*/%<>=~01xni\"' #\t;@é") + lines[k][at + rng.randrange(2) :]
        )
    else:
        lines[k] += rng.choice(("  # comment", ";", " \\", "; pass", " if n else 0", ", 1"))
    return "\n".join(lines)


def _attempts(rng: random.Random) -> Iterator[str]:
    while True:
        tree = copy.deepcopy(rng.choice(_TREES))
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            rng.choice(TREE_MUTATIONS)(tree, rng)
        try:
            text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue  # the tree has no text
        if rng.random() < 0.25:
            text = change_text(text, rng)
        yield text


def _top_level(tree: ast.Module) -> list[str]:
    """What stands outside the functions, and their names: running it must not run a mutation."""
    return sorted(n.name if isinstance(n, ast.FunctionDef) else ast.unparse(n) for n in tree.body)


_TOP_LEVEL = _top_level(_TREES[0])


def mutated(seed: int) -> str:
    """The source of case ``seed``: Python text that defines ``kernel`` at its top level."""
    for text in _attempts(random.Random(seed)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, "<mutated>", "exec")
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue  # not Python: its own error, not ours
        if _top_level(tree) == _TOP_LEVEL and all(f.decorator_list for f in _functions(tree)):
            return text
    raise AssertionError("unreachable")
