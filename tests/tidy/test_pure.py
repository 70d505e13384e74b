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

# Decision code takes time and chance as arguments; these modules are the edges that may ask.
CLOCK_EDGES = re.compile(
    r"^(dledger/clock|dledger/files|dledger/raft/(host|transport|links?|_pysyncobj)"
    r"|broker/dledger_broker/(?!admission|long_poll|config)|broker/dledger_namesrv/(?!registry)"
    r"|client/(dledger_client/(?!_accumulator|_routes|_retry|latency|_fetch)|generate_sync)"
    r"|bench/|deploy/|tests/|proto/generate"
    r"|jepsen_tests/(?!checkers|history|schedule))"
)
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
    "asyncio", "concurrent", "datetime", "fcntl", "grpc", "http", "io", "lmdb", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "ssl", "structlog", "subprocess", "tempfile", "threading", "time",
    "urllib", "uuid", "uvloop",
})  # fmt: skip
TYPES_ALONE = frozenset({"Random", "Path", "timedelta"})
"""Names of these modules that decide nothing by themselves: what is passed in has this type."""
IMPURE_CALLS = frozenset({"open", "print", "input", "breakpoint", "Random", "SystemRandom"})

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
        match node:
            case ast.Import():
                for each in node.names:
                    if each.name.partition(".")[0] in IMPURE_IMPORTS:
                        yield f"line {node.lineno}: imports {each.name}"
            case ast.ImportFrom(module=str(module), level=0):
                if module.partition(".")[0] in IMPURE_IMPORTS:
                    for each in node.names:
                        if each.name not in TYPES_ALONE:
                            yield f"line {node.lineno}: imports {each.name} of {module}"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"line {node.lineno}: calls {name}"
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"line {node.lineno}: waits"
            case _:
                pass


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
