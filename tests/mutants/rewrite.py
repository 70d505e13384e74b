"""Re-introducing a bug: a function of the product with one piece of its text replaced.

Owns: the rewriting. A mutant names a function, the text as it stands in the product, and the text
with the bug. The old text must occur exactly once, so a mutant cannot silently stop meaning
anything when the product changes. The product itself has no switch.
"""

import __future__

import importlib
import inspect
import itertools
import linecache
import re
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """One replaced piece of text in one function.

    `where` is "module:function" or "module:Class.method"; properties and static methods count.
    """

    where: str
    old: str
    new: str


_numbers = itertools.count(1)


class StaleMutant(AssertionError):
    """The text that a mutant replaces is not in the product any more."""


def _owner(where: str) -> tuple[Any, str]:
    module_name, _, path = where.partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def _function(attribute: Any) -> FunctionType:
    if isinstance(attribute, property):
        assert isinstance(attribute.fget, FunctionType)
        return attribute.fget
    if isinstance(attribute, staticmethod | classmethod):
        return _function(attribute.__func__)
    assert isinstance(attribute, FunctionType), f"cannot rewrite {attribute!r}"
    return attribute


def _compiled(function: FunctionType, owner: Any, edit: Edit) -> FunctionType:
    source = inspect.getsource(function)
    count = source.count(edit.old)
    if count != 1:
        raise StaleMutant(f"{edit.where}: {count} times, not once, in the product: {edit.old!r}")
    source = textwrap.dedent(source.replace(edit.old, edit.new))
    while not source.startswith(("def ", "async def ")):  # decorators are put back by the caller
        source = source.split("\n", 1)[1]
    if inspect.isclass(owner):  # private names, as the compiler would have spelled them
        mangled = owner.__name__.lstrip("_")
        source = re.sub(r"\.__(?=[A-Za-z])(\w*?)(?<!__)\b", rf"._{mangled}__\1", source)
        source = re.sub(r"^((?:async )?def) __(\w+?)(?<!__)\(", rf"\1 _{mangled}__\2(", source)
        source = source.replace("super()", f"super({owner.__name__}, self)")
    name = f"<mutant {next(_numbers)} of {edit.where}>"
    # Where `inspect` looks, so that a second edit of the same function finds the first.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    flags = __future__.annotations.compiler_flag
    code = compile(source, name, "exec", flags=flags, dont_inherit=True)
    space: dict[str, Any] = {}
    exec(code, function.__globals__, space)
    (made,) = (value for value in space.values() if isinstance(value, FunctionType))
    made.__kwdefaults__ = function.__kwdefaults__
    made.__defaults__ = function.__defaults__
    return made


def _wrapped(attribute: Any, function: FunctionType) -> Any:
    if isinstance(attribute, property):
        return property(function, attribute.fset, attribute.fdel, attribute.__doc__)
    if isinstance(attribute, staticmethod):
        return staticmethod(function)
    if isinstance(attribute, classmethod):
        return classmethod(function)
    return function


@contextmanager
def applied(*edits: Edit) -> Iterator[None]:
    """Run with edits in the product; the product is as before afterwards."""
    with ExitStack() as stack:
        for edit in edits:
            owner, name = _owner(edit.where)
            if inspect.isclass(owner):
                # Where it is defined, not where it is inherited: only that class is changed.
                owner = next(cls for cls in owner.__mro__ if name in vars(cls))
            attribute = vars(owner)[name]
            function = _compiled(_function(attribute), owner, edit)
            setattr(owner, name, _wrapped(attribute, function))
            stack.callback(setattr, owner, name, attribute)
            if not inspect.isclass(owner):
                _rebind(stack, owner.__name__, attribute, getattr(owner, name))
        yield


def _rebind(stack: ExitStack, home: str, old: Any, new: Any) -> None:
    """Replace a module's function in every module of ours that imported it by name."""
    import sys

    # A copy: a thread of an earlier test may import something meanwhile.
    for module_name, module in sorted(sys.modules.copy().items()):
        if module is None or module_name == home:
            continue
        if not module_name.startswith(("dledger", "tests.")):
            continue
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)
                stack.callback(setattr, module, name, old)
