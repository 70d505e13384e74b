"""Purity: decision code takes time and chance as arguments, and does no I/O.

Two rules. Everywhere but at the named edges nobody asks the machine for time or chance. In the pure
folders nothing else of the machine is imported either: no I/O, no threads, no asyncio.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, Rule, check, name_of, our_files

PURE = {
    "broker/dledger_broker/config/": (),
    "broker/dledger_broker/group/": ("group_view.py", "commands.py"),
    "broker/dledger_broker/rpc/admission.py": (),
    "broker/dledger_namesrv/": ("__main__.py", "logs.py", "service.py"),
    "client/dledger_client/_core/": (),
    "client/dledger_client/arrow/": (),
    "dledger/raft/": ("driver/", "engine/_pysyncobj.py", "links/"),
    "dledger/state/": ("saved.py",),
    "jepsen_tests/checkers/": ("bench.py",),
    "jepsen_tests/history/": ("history_file.py",),
    "proto/dledger_proto/batch/": ("compression.py",),
    "tests/sim/invariants/": (),
}
"""Folders of decision code, each with what in it is an edge all the same."""
CLOCK_EDGES = re.compile(
    r"^(dledger/(clock|files)\.|dledger/raft/(driver|engine|links)/|dledger/store/"
    r"|broker/|client/(dledger_client/(?!latency|selectors)|generate_sync)"
    r"|bench/|deploy/|docs/|tests/|proto/generate|jepsen_tests/(?!run/schedule))"
)
"""The edges that may ask the machine for time and chance; the rule for `PURE` comes on top."""
BANNED_CALLS = {
    "time.time": "take `now` or a Clock",
    "time.monotonic": "take `now` or a Clock",
    "time.perf_counter": "take `now` or a Clock",
    "time.sleep": "wait for a condition",
    "datetime.now": "take `now` or a Clock",
    "random.random": "take a seeded Random",
    "random.randint": "take a seeded Random",
    "random.choice": "take a seeded Random",
    "random.uniform": "take a seeded Random",
    "os.urandom": "take a seeded Random",
}

IMPURE_IMPORTS = frozenset({
    "asyncio", "concurrent", "fcntl", "grpc", "http", "io", "lmdb", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "queue", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "ssl", "structlog", "subprocess", "tempfile", "threading", "time",
    "urllib", "uuid", "uvloop",
})  # fmt: skip
HARMLESS = frozenset({"Path"})
"""Names of these modules that decide nothing and touch nothing."""
IMPURE_CALLS = frozenset({"open", "print", "input", "breakpoint", "SystemRandom"})
IMPURE_METHODS = frozenset({"now", "utcnow", "today", "urandom"})
"""Of `datetime` and the like, by whatever name it was imported."""

# How grpc.aio is used has one home, which mends its wake-ups.
GRPC_HOME = "proto/dledger_proto/rpc/aio.py"
MADE_ELSEWHERE = ("grpc.aio.insecure_channel", "grpc.aio.secure_channel", "grpc.aio.server")


def banned_call(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BANNED_CALLS:
                yield f"line {node.lineno}: {name}: {BANNED_CALLS[name]}"


def impure(text: str) -> Iterator[str]:
    """Find what of the machine a module of a pure folder imports or calls."""
    for node in ast.walk(ast.parse(text)):
        found = list(_imported(node))
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                found.append(f"calls {name}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (
                owner in {"datetime", "date", "dt"} and name in IMPURE_METHODS
            ):
                found.append(f"calls {owner}.{name}")
            case ast.Call(func=ast.Name(id="Random"), args=[]):
                found.append("makes a Random without a seed")
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                found.append("waits")
            case _:
                pass
        for what in found:
            yield f"line {getattr(node, 'lineno', 0)}: {what}"
    yield from _global_chance(text)


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import():
            for each in node.names:
                if each.name.partition(".")[0] in IMPURE_IMPORTS and each.name not in HARMLESS:
                    yield f"imports {each.name}"
        case ast.ImportFrom(module=str(module), level=0):
            for each in node.names:
                if module.partition(".")[0] in IMPURE_IMPORTS and each.name not in HARMLESS:
                    yield f"imports {each.name} of {module}"
                if module == "random" and each.name != "Random":
                    yield f"imports {each.name} of random"
        case _:
            pass


def _global_chance(text: str) -> Iterator[str]:
    """Find uses of the module `random` itself, apart from its type `Random`."""
    tree = ast.parse(text)
    modules = (
        each for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    )
    if any(each.name == "random" for each in modules):
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "random"
                and node.attr != "Random"
                and "random" not in arguments
            ):
                yield f"line {node.lineno}: random.{node.attr}: take a seeded Random"


def pure_files() -> Iterator[Path]:
    """Yield the files of the pure folders."""
    for path in our_files():
        for folder, edges in PURE.items():
            name = name_of(path)
            if name.startswith(folder) and not name.removeprefix(folder).startswith(
                edges or ("?",)
            ):
                yield path


def made_elsewhere(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MADE_ELSEWHERE:
            yield f"line {node.lineno}: {ast.unparse(node.func)}: take {GRPC_HOME}"


def sleeping(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\btime\.sleep\(", line) and "poll interval" not in line:
            yield f"line {number}: a test waits for a condition, it does not sleep"


def test_time_and_chance_are_arguments() -> None:
    """Only the named edge modules ask the machine for time or chance."""
    check(banned_call, [path for path in our_files() if not CLOCK_EDGES.match(name_of(path))])


def test_pure_folders_know_nothing_of_the_machine() -> None:
    """No clock, no chance, no I/O, no threads, no asyncio."""
    check(impure, pure_files())


@pytest.mark.parametrize("folder", PURE)
def test_pure_folders_are_there(folder: str) -> None:
    """A folder that has moved would be checked no more."""
    assert any(name_of(path).startswith(folder) for path in our_files())


def test_channels_and_servers_are_made_in_one_place() -> None:
    """Its wake-ups block a busy loop otherwise; tests may do as they like."""
    files = [path for path in our_files() if "tests" not in path.relative_to(ROOT).parts]
    check(made_elsewhere, [path for path in files if path != ROOT / GRPC_HOME])


def test_tests_do_not_sleep() -> None:
    """Tests use virtual time, or wait for a condition with a deadline."""
    this = Path(__file__)
    check(sleeping, [path for path in our_files() if "tests" in path.parts and path != this])


SAMPLES: list[tuple[Rule, str]] = [
    (banned_call, "import time\ntime.time()"),
    (impure, "import asyncio"),
    (impure, "import os.path"),
    (impure, "from time import monotonic"),
    (impure, "from random import Random, choice"),
    (impure, "import random\nrandom.shuffle([])"),
    (impure, "from random import Random\nchance = Random()"),
    (impure, "import datetime as dt\nnow = dt.now()"),
    (impure, "data = open('file').read()"),
    (impure, "async def f(): ..."),
    (made_elsewhere, "import grpc.aio\ngrpc.aio.server()"),
    (sleeping, "time.sleep(1)"),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(rule: Rule, sample: str) -> None:
    """A rule that cannot fail proves nothing."""
    assert list(rule(sample))


def test_types_of_the_machine_are_no_impurity() -> None:
    text = "from random import Random\ndef pick(random: Random) -> float: return random.random()"
    assert not list(impure(text))
