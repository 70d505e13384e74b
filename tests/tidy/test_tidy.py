"""Our own rules on our own code; each rule is itself tried on a small sample.

A rule is a function of one file's text that yields what is wrong with it. Most of what other
projects check by hand is checked by ruff, mypy, pyright and the import contracts; here is the rest.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
SOURCE_ROOTS = ("broker", "client", "proto")

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|\bfor n" + r"ow\b")
NOT_OURS = re.compile(r"_pb2(_grpc)?\.pyi?$|^bench/prototype/")
"""Generated code, and the peer that benchmarks run beside ours: kept as it was measured."""

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


# How grpc.aio is used has one home, which mends its wake-ups.
GRPC_HOME = "proto/dledger_proto/aio.py"
MADE_ELSEWHERE = ("grpc.aio.insecure_channel", "grpc.aio.secure_channel", "grpc.aio.server")


def our_files() -> list[Path]:
    """Return every tracked or new Python file that a person wrote."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in listed if not NOT_OURS.search(name) and (ROOT / name).exists()]


def long_module(text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines, at most {MODULE_LINES_MAX}"


def long_function(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def unfinished(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"line {number}: unfinished: {line.strip()}"


def banned_call(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BANNED_CALLS:
                yield f"line {node.lineno}: {name}: {BANNED_CALLS[name]}"


def made_elsewhere(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MADE_ELSEWHERE:
            yield f"line {node.lineno}: {ast.unparse(node.func)}: take {GRPC_HOME}"


def sleeping(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\btime\.sleep\(", line) and "poll interval" not in line:
            yield f"line {number}: a test waits for a condition, it does not sleep"


Rule = Callable[[str], Iterator[str]]


def _check(rule: Rule, files: list[Path]) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {what}" for path in files for what in rule(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", [long_module, long_function, unfinished])
def test_every_file(rule: Rule) -> None:
    """No module over 500 lines, no function over 60, nothing unfinished."""
    _check(rule, our_files())


def test_time_and_chance_are_arguments() -> None:
    """Only the named edge modules ask the machine for time or chance."""
    files = [path for path in our_files() if not CLOCK_EDGES.match(str(path.relative_to(ROOT)))]
    _check(banned_call, files)


def test_channels_and_servers_are_made_in_one_place() -> None:
    """Its wake-ups block a busy loop otherwise; tests may do as they like."""
    files = [path for path in our_files() if "tests" not in path.relative_to(ROOT).parts]
    _check(made_elsewhere, [path for path in files if path != ROOT / GRPC_HOME])


def test_tests_do_not_sleep() -> None:
    """Tests use virtual time, or wait for a condition with a deadline."""
    this = Path(__file__)
    _check(sleeping, [path for path in our_files() if "tests" in path.parts and path != this])


def test_source_roots_are_not_packages() -> None:
    """Folders with generic names hold packages of unique names and are none themselves."""
    for root in SOURCE_ROOTS:
        assert not (ROOT / root / "__init__.py").exists(), root


def test_lock_file_names_no_host() -> None:
    """The lock file holds versions and hashes, no addresses."""
    assert "://" not in (ROOT / "requirements.lock").read_text()


SAMPLES: list[tuple[Rule, str]] = [
    (long_module, "\n" * 501),
    (long_function, "def f():\n" + "    x = 1\n" * 61),
    (unfinished, "# TO" + "DO later"),
    (banned_call, "import time\ntime.time()"),
    (made_elsewhere, "import grpc.aio\ngrpc.aio.server()"),
    (sleeping, "time.sleep(1)"),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(rule: Rule, sample: str) -> None:
    """A rule that cannot fail proves nothing."""
    assert list(rule(sample))
