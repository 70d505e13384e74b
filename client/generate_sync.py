"""Writes the synchronous classes of `dledger_client/` from the asyncio ones (`*_async.py`).

    python client/generate_sync.py            write the files
    python client/generate_sync.py --check    write nothing; exit 1 if a file is not up to date

The asyncio file is parsed to an AST, which says *where* something has to change; the text is then
edited in those places, so that comments and layout stay. Changed are:

- `async def`, `async with`, `async for`, `await`: lose their first word, `await` altogether;
- names, attributes and words in docstrings: by the table `NAMES`.

All other differences are in `_shell/runner.py` and `_shell/futures.py`.

The twin of a file in `WRAPPED` has the same methods and docstrings, but not their code: each
method runs that of the asyncio class on the background loop.

Whatever is asynchronous afterwards is an error, so that a new construct cannot slip through.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent / "dledger_client"
PAIRS = {
    "producer_async.py": "producer.py",
    "consumer_async.py": "consumer.py",
    "admin_async.py": "admin.py",
    "_shell/group/administration_async.py": "_shell/group/administration.py",
    "push_async.py": "push.py",
}
WRAPPED = frozenset({"admin_async.py", "_shell/group/administration_async.py"})
"""Whose twins only run the methods of the asyncio class."""
NAMES = {
    "AsyncProducer": "Producer",
    "AsyncConsumer": "Consumer",
    "AsyncAdmin": "Admin",
    "AsyncGroupAdministration": "GroupAdministration",
    "AsyncPushConsumer": "PushConsumer",
    "AsyncSendFuture": "SendFuture",
    "AsyncRunner": "SyncRunner",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "submit": "send_async",
    "take": "take_from_thread",
    "producer_async": "producer",
    "consumer_async": "consumer",
    "admin_async": "admin",
    "administration_async": "administration",
    "push_async": "push",
}
SENTENCES = {
    "Hand one message over without waiting; return a future of its outcome.": (
        "Hand one message over without waiting for its outcome; return a future of it."
    ),
    "While the buffer is full: raises BufferFull; see `wait_for_room`.": (
        "While the buffer is full: waits up to the budget of the send."
    ),
    "Cancelling the wait does not take the message back.": (
        "Interrupting the wait does not take the message back."
    ),
}
HEADER = "# Generated from {source} by client/generate_sync.py. Change that file, not this one.\n"


class Edit(NamedTuple):
    """Replace source[start:end] by text. Byte offsets."""

    start: int
    end: int
    text: str


class ModuleText:
    """A module's text with its AST, addressed by byte."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Return the byte offset of a place in the AST."""
        return self._lines[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return where a node begins."""
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return where a node ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def edited(self, edits: list[Edit]) -> str:
        """Return the text with all edits, which must not overlap."""
        data = self.data
        before = len(data) + 1
        for edit in sorted(edits, reverse=True):
            if edit.end > before:
                raise ValueError(f"edits overlap at byte {edit.start}")
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
            before = edit.start
        return data.decode()


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Iterate over docstrings and over strings that stand as statements."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def translate_words(text: str) -> str:
    """Translate a docstring: sentences, then the names, then the keywords of examples."""
    text = re.sub(
        r" `\w+\.py` is generated from this file by `client/generate_sync\.py`\.", "", text
    )
    for before, after in SENTENCES.items():
        text = re.sub(re.escape(before).replace(r"\ ", r"\s+"), after, text)
    text = re.sub(r"\basync (with|for|def)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    for before, after in NAMES.items():
        if before in ("take", "submit"):
            text = re.sub(rf"`{before}`|\.{before}\(", lambda m: m[0].replace(before, after), text)  # noqa: B023
        else:
            text = re.sub(rf"\b{before}\b", after, text)
    return text


def edits_of(source: ModuleText) -> Iterator[Edit]:
    """Iterate over all changes."""
    for constant in docstrings(source.tree):
        start, end = source.start(constant), source.end(constant)
        text = source.data[start:end].decode()
        yield Edit(start, end, translate_words(text))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor):
            start = source.start(node)
            keyword = re.match(rb"async\s+", source.data[start:])
            assert keyword is not None
            yield Edit(start, start + keyword.end(), "")
        elif isinstance(node, ast.Await):
            yield Edit(source.start(node), source.start(node.value), "")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _renamed_definition(source, node)
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield Edit(source.start(node), source.end(node), NAMES[node.id])
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            end = source.end(node)
            yield Edit(end - len(node.attr), end, NAMES[node.attr])
        elif isinstance(node, ast.ImportFrom):
            yield from _renamed_import(source, node)


def _renamed_definition(
    source: ModuleText, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> Iterator[Edit]:
    if node.name in NAMES:
        match = re.compile(rb"(?:def|class)\s+").search(source.data, source.start(node))
        assert match is not None
        yield Edit(match.end(), match.end() + len(node.name), NAMES[node.name])


def _renamed_import(source: ModuleText, node: ast.ImportFrom) -> Iterator[Edit]:
    module = (node.module or "").rpartition(".")[2]
    if module in NAMES:
        end = source.start(node) + len(f"from {node.module}")
        yield Edit(end - len(module), end, NAMES[module])
    for alias in node.names:
        if alias.name in NAMES:
            start = source.at(alias.lineno, alias.col_offset)
            yield Edit(start, start + len(alias.name), NAMES[alias.name])


def generate(text: str, source_name: str) -> str:
    """Return the synchronous module of an asyncio module."""
    source = ModuleText(text)
    twin = HEADER.format(source=Path(source_name).name) + source.edited(list(edits_of(source)))
    if source_name in WRAPPED:
        twin = wrapper(ModuleText(twin), source_name.removesuffix(".py").replace("/", "."))
    for node in ast.walk(ast.parse(twin)):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor | ast.Await) or (
            isinstance(node, ast.comprehension) and node.is_async
        ):
            raise ValueError(f"{source_name}: still asynchronous: {ast.dump(node)[:200]}")
    return formatted(twin)


def wrapper(twin: ModuleText, module: str) -> str:
    """Return a twin whose methods run those of the asyncio class, instead of what they did."""
    file = module.rpartition(".")[2] + ".py"
    docstring, *rest = twin.tree.body
    (client,) = (node for node in rest if isinstance(node, ast.ClassDef))
    added = (
        f'"""Administration by blocking calls: each runs its twin of `{file}`."""\n\n'
        f"from dledger_client.{module} import Async{client.name}\n"
        "from dledger_client._shell.runner import SyncRunner\n"
    )
    edits = [Edit(twin.start(docstring), twin.end(docstring), added)]
    edits += [
        Edit(twin.start(node), twin.end(node), "")
        for node in rest
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)
    ]
    bases = [base.id for base in client.bases if isinstance(base, ast.Name)]
    for method in client.body:
        if isinstance(method, ast.FunctionDef) and method.name not in ("__enter__", "__exit__"):
            edits.append(_wrapped(twin, method, client.name, bases))
    return twin.edited(edits)


def _twin_of(name: str) -> str:
    """Return the attribute that holds the asyncio object that a blocking class runs."""
    return re.sub("(?=[A-Z])", "_", name).lower()


def _wrapped(twin: ModuleText, method: ast.FunctionDef, name: str, bases: Sequence[str]) -> Edit:
    start, end = twin.start(method.body[0]), twin.end(method)
    given = [each.arg for each in method.args.args[1:]]
    given += [f"{each.arg}={each.arg}" for each in method.args.kwonlyargs]
    given += [f"**{method.args.kwarg.arg}"] if method.args.kwarg is not None else []
    arguments = ", ".join(given)
    if method.name == "__init__":
        lines = [f"self.{_twin_of(name)} = Async{name}({arguments})"]
        lines += [f"self.{_twin_of(base)} = self.{_twin_of(name)}" for base in bases]
        body = "\n        ".join((*lines, "self._runner = SyncRunner()"))
        return Edit(start, end, body)
    if method.name.startswith("_"):
        return Edit(twin.start(method), end, "")
    run = f"self._runner.run(self.{_twin_of(name)}.{method.name}({arguments}))"
    if method.name == "start":
        run += "\n        return self"
    else:
        run = f"return {run}"
    return Edit(twin.end(method.body[0]), end, f"\n        {run}")


def formatted(text: str) -> str:
    """Return the text as ruff sorts and formats it, with the project's settings."""
    name = str(PACKAGE / "generated.py")
    for arguments in (
        ("check", "--fix", "--select", "I,F", "--quiet", "--stdin-filename", name, "-"),
        ("format", "--quiet", "--stdin-filename", name, "-"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments],
            input=text, capture_output=True, text=True, check=False, cwd=PACKAGE.parent.parent,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"ruff {arguments[0]}: {done.stderr or done.stdout}")
        text = done.stdout
    return text


def main() -> int:
    """Write or check all twins; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on a change")
    only_check: bool = parser.parse_args().check
    stale: list[str] = []
    for source_name, twin_name in PAIRS.items():
        twin = generate((PACKAGE / source_name).read_text(), source_name)
        path = PACKAGE / twin_name
        if path.exists() and path.read_text() == twin:
            continue
        stale.append(twin_name)
        if not only_check:
            path.write_text(twin)
    if stale:
        print(("not up to date: " if only_check else "written: ") + ", ".join(stale))
    return 1 if stale and only_check else 0


if __name__ == "__main__":
    sys.exit(main())
