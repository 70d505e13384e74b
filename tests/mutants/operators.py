"""Small changes of a module's source: conditions that always or never hold, bounds moved by one.

Owns: which changes there are, and their names. A condition becomes True or False, which also drops
a guard's early return; `<` and `<=`, `>` and `>=` change places; of `min` and `max` with two
arguments either is returned. Assertions stay: they find bugs of ours, and no test can trip them.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

SHIFTED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
Step = tuple[str, int]
"""From a node to its child: a field, and the place in it when it is a list, else -1."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed expression. `name` is unique in its module, and free of line numbers."""

    name: str
    """function: before -> after"""
    lines: range
    """Where it stands."""
    path: tuple[Step, ...]
    """From the module to the expression."""
    after: ast.expr


def changes_of(source: str) -> list[Change]:
    """Return every change of a module, in the order of its text."""
    found: list[Change] = []
    seen: Counter[str] = Counter()
    for function, path, node in _functions(ast.parse(source), "", ()):
        for where, changed, after in _places(node, path):
            name = f"{function}: {_short(changed)} -> {_short(after)}"
            seen[name] += 1
            number = f" #{seen[name]}" if seen[name] > 1 else ""
            lines = range(changed.lineno, (changed.end_lineno or changed.lineno) + 1)
            found.append(Change(name + number, lines, where, after))
    return found


def compiled(source: str, file: str, change: Change) -> dict[tuple[str, int], CodeType]:
    """Compile a module with one change; return its functions' code by name and first line."""
    tree = ast.parse(source)
    *way, last = change.path
    owner: ast.AST = tree
    for step in way:
        owner = _child(owner, step)
    after = ast.copy_location(copy.deepcopy(change.after), _child(owner, last))
    field, place = last
    if place < 0:
        setattr(owner, field, after)
    else:
        getattr(owner, field)[place] = after
    module = compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in codes_of(module)}


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """Yield every function, class body and comprehension below a piece of code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_of(constant)


def _child(node: ast.AST, step: Step) -> ast.AST:
    value = getattr(node, step[0])
    child: ast.AST = value if step[1] < 0 else value[step[1]]
    return child


def _children(node: ast.AST) -> Iterator[tuple[Step, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for place, child in enumerate(value) if isinstance(value, list) else ((-1, value),):
            if isinstance(child, ast.AST):
                yield (field, place), child


def _functions(
    node: ast.AST, prefix: str, path: tuple[Step, ...]
) -> Iterator[tuple[str, tuple[Step, ...], ast.AST]]:
    for step, child in _children(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, (*path, step), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", (*path, step))


def _places(
    node: ast.AST, path: tuple[Step, ...]
) -> Iterator[tuple[tuple[Step, ...], ast.expr, ast.expr]]:
    """Yield (path, expression, what stands there instead) below a function."""
    for step, child in _children(node):
        if isinstance(child, ast.Assert) or step[0] == "decorator_list":
            continue
        if isinstance(child, ast.expr):
            for after in _alternatives(node, step[0], child):
                yield (*path, step), child, after
        yield from _places(child, (*path, step))


def _alternatives(parent: ast.AST, field: str, node: ast.expr) -> Iterator[ast.expr]:
    if _is_choice(node):
        assert isinstance(node, ast.Call)
        yield from node.args
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SHIFTED:
        shifted = copy.deepcopy(node)
        shifted.ops = [SHIFTED[type(node.ops[0])]()]
        yield shifted
    if _is_condition(parent, field, node):
        # An `and` with one operand True, an `or` with one False say more than the whole so changed.
        outer = parent.op if isinstance(parent, ast.BoolOp) else None
        inner = node.op if isinstance(node, ast.BoolOp) else None
        endless = isinstance(parent, ast.While)
        if not (isinstance(outer, ast.Or) or isinstance(inner, ast.And) or endless):
            yield ast.Constant(value=True)
        if not (isinstance(outer, ast.And) or isinstance(inner, ast.Or)):
            yield ast.Constant(value=False)


def _is_choice(node: ast.expr) -> bool:
    """Tell `min(a, b)` and `max(a, b)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("min", "max")
        and len(node.args) == 2
        and not any(isinstance(each, ast.Starred) for each in node.args)
    )


def _is_condition(parent: ast.AST, field: str, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return False
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return False  # changed with its `not`
    if isinstance(parent, ast.BoolOp):
        return True
    if isinstance(parent, ast.If | ast.IfExp | ast.While):
        return field == "test"
    if isinstance(parent, ast.comprehension):
        return field == "ifs"
    if isinstance(node, ast.BoolOp):
        return isinstance(parent, ast.Return | ast.Assign)
    return isinstance(node, ast.Compare)


def _short(node: ast.expr) -> str:
    return " ".join(ast.unparse(node).split())
