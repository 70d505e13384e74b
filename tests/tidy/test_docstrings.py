"""A public method says what it does, unless it implements a method that says so already."""

import ast
from collections.abc import Collection, Iterator

from tests.tidy.sources import SOURCE_FOLDERS, name_of, our_files


def public_methods(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield name, line and whether it has a docstring, of each method that others may call."""
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_"):
            for method in owner.body:
                if isinstance(
                    method, ast.FunctionDef | ast.AsyncFunctionDef
                ) and not method.name.startswith("_"):
                    yield method.name, method.lineno, ast.get_docstring(method) is not None


def unexplained(
    sources: Collection[tuple[str, str]],
) -> Iterator[str]:
    """Yield the public methods without a docstring whose name no class of ours explains."""
    found = [(path, *each) for path, text in sources for each in public_methods(ast.parse(text))]
    explained = {name for _, name, _, has_docstring in found if has_docstring}
    for path, name, line, has_docstring in found:
        if not has_docstring and name not in explained:
            yield f"{path}:{line}: {name}"


def test_every_public_method_is_explained() -> None:
    sources = [
        (name_of(path), path.read_text())
        for path in our_files()
        if name_of(path).startswith(SOURCE_FOLDERS)
    ]
    assert len(sources) > 300
    wrong = list(unexplained(sources))
    assert not wrong, "\n".join(wrong)


def test_a_method_that_nobody_explains_is_found() -> None:
    said = 'class A:\n    def go(self):\n        """Go."""\n'
    silent = "class B:\n    def go(self): ...\n    def stop(self): ...\n    def _hide(self): ...\n"
    assert list(unexplained([("a", said), ("b", silent)])) == ["b:3: stop"]
