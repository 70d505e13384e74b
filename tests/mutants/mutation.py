"""`make mutation`: which comparison or guard of the log, Raft and the state does no test notice?

    python -m tests.mutants.mutation [raft.barrier log ...] [--only TEXT] [--tests PATH ...]

Owns: running the tests that reach a changed line, quickest first, in a forked child, until one
fails; what survives is looked up in `survivors.json`, which says for each survivor why it may.
A survivor without a verdict fails the run; a row "module:*" says that nobody has judged a module's
survivors yet. What was found is kept in `out/mutation.jsonl`, so that a run that was broken off
goes on; `--fresh` tries everything again. Which test reaches which line is found first, by one run
of all tests under trace.
"""

import argparse
import contextlib
import gc
import hashlib
import json
import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.operators import Change, changes_of, compiled

ROOT: Final = Path(__file__).parents[2]
SURVIVORS: Final = Path(__file__).with_name("survivors.json")
FOUND: Final = ROOT / "out" / "mutation.jsonl"
REACH: Final = FOUND.with_name("mutation-reach.pickle")
PACKAGES: Final = ("raft", "log", "state", "store")
TESTS: Final = (
    "tests/unit/raft",
    "tests/unit/raft_host",
    "tests/unit/log",
    "tests/unit/state",
    "tests/scenarios",
)
NOT_THERE: Final = ("test_export", "test_plans", "test_columns")
"""Scenarios of clients: they reach the modules at hand only to have something to read."""
NOT_REACHED: Final = "not reached"
NOT_JUDGED: Final = "not judged"
VERDICTS: Final = ("equivalent", "harmless", NOT_JUDGED)
SECONDS: Final = 10.0
"""Of tests per change, as they took under trace (about a third of it without)."""
CPU_FACTOR: Final = 3.0
CPU_MORE: Final = 4
"""A child that takes CPU_FACTOR times what its tests took, and so many seconds, hangs."""
WALL_SECONDS: Final = 180.0
"""A child that takes longer waits for something that does not come."""
DATA_BYTES: Final = 3 << 30
"""A child that wants more memory than this grows without bound."""

Lines = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Reached:
    """What one test reaches, and how long it took, in CPU seconds under trace."""

    place: int
    seconds: float
    lines: Lines


def modules_of(wanted: Sequence[str]) -> dict[str, Path]:
    """Return the modules below `dledger` that were asked for ("raft", "raft.barrier"), in order."""
    found = {
        ".".join(path.relative_to(ROOT / "dledger").with_suffix("").parts): path
        for package in PACKAGES
        for path in sorted((ROOT / "dledger" / package).rglob("*.py"))
    }
    chosen = {
        name: path
        for each in wanted
        for name, path in found.items()
        if name == each or name.startswith(f"{each}.")
    }
    missing = [each for each in wanted if not any(name.startswith(each) for name in found)]
    assert not missing, f"no modules below dledger: {missing}"
    return chosen


class Hunt:
    """A pytest plugin that runs the collected tests again and again, each time with a change."""

    def __init__(self, work: Sequence[tuple[str, Path, Change]], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._items: list[pytest.Item] = []
        self._reached: list[Reached] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is slow, or of clients."""
        items[:] = [
            item
            for item in items
            if not any(each in item.nodeid for each in NOT_THERE)
            and not any(item.iter_markers("slow"))
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the hunt in place of the tests."""
        began = time.monotonic()
        self._items = session.items
        self._reached = _known_reach(session.items)
        print(f"{len(session.items)} tests, {time.monotonic() - began:.0f} s", flush=True)
        for key, path, change in self._work:
            self._try(key, path, change)
        return True

    def _try(self, key: str, path: Path, change: Change) -> None:
        began = time.monotonic()
        tests = self._tests_of(path, change.lines)
        by = NOT_REACHED
        if tests:
            by = _in_child(lambda: self._run(tests, path, change), "it hung, or ended the process")
        row = {"key": key, "line": change.lines[0], "by": by, "tests": len(tests)}
        with FOUND.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{time.monotonic() - began:6.1f} s  {key}  {by or '*** survived ***'}", flush=True)

    def _tests_of(self, path: Path, lines: range) -> list[Reached]:
        """Return the tests that reach one of the lines, within the seconds.

        First those of the module's own file, then one of each file in turn, the quickest first:
        most tests reach what is central, and the one that looks at it may be anywhere.
        """
        by_file: defaultdict[str, list[Reached]] = defaultdict(list)
        for each in sorted(self._reached, key=lambda each: each.seconds):
            if not each.lines.get(str(path), set()).isdisjoint(lines):
                by_file[self._items[each.place].path.stem].append(each)
        own = by_file.pop(f"test_{path.stem.lstrip('_')}", [])
        turns = zip_longest(*(by_file[file] for file in sorted(by_file)))
        chosen: list[Reached] = []
        left = self._seconds
        for each in (*own, *filter(None, chain.from_iterable(turns))):
            if left >= each.seconds or not chosen:
                chosen.append(each)
                left -= each.seconds
        return chosen

    def _run(self, tests: list[Reached], path: Path, change: Change) -> str:
        """Return the test that noticed; empty when none did. Runs in a child of its own."""
        cpu = int(CPU_MORE + CPU_FACTOR * sum(each.seconds for each in tests))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
        _exchange(str(path), compiled(path.read_text(), str(path), change))
        return next((i.nodeid for i in (self._items[t.place] for t in tests) if _fails(i)), "")


def _fails(item: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _exchange(file: str, codes: dict[tuple[str, int], CodeType]) -> None:
    """Give every function of a file its changed code, whoever holds it, under whatever name."""
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == file:
            place = each.__code__.co_qualname, each.__code__.co_firstlineno
            changed = codes.get(place)
            if changed is not None and changed.co_freevars == each.__code__.co_freevars:
                each.__code__ = changed


def _known_reach(items: list[pytest.Item]) -> list[Reached]:
    """Return which test reaches what: kept from a run of the same tests of the same text."""
    paths = sorted(path for top in ("dledger", "tests") for path in (ROOT / top).rglob("*.py"))
    texts = (str(ROOT), *(path.read_text() for path in paths), *(item.nodeid for item in items))
    key = hashlib.blake2b("\0".join(texts).encode()).hexdigest()
    kept = pickle.loads(REACH.read_bytes()) if REACH.exists() else {}
    if key not in kept:
        files = {str(path) for path in modules_of(PACKAGES).values()}
        kept = {key: _in_child(lambda: _reach(items, files))}
        REACH.write_bytes(pickle.dumps(kept))
    reached: list[Reached] = kept[key]
    return reached


def _reach(items: list[pytest.Item], files: set[str]) -> list[Reached]:
    """Run every test once; a test that fails without any change is left out."""
    found: list[Reached] = []
    for place, item in enumerate(items):
        lines: Lines = defaultdict(set)
        began = time.process_time()
        with _traced(files, lines):
            failed = _fails(item)
        if failed:
            print(f"fails as it is: {item.nodeid}", file=sys.stderr)
            continue
        found.append(Reached(place, time.process_time() - began, dict(lines)))
    return found


@contextlib.contextmanager
def _traced(files: set[str], lines: Lines) -> Iterator[None]:
    def enter(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        return note if file in files else None

    def note(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return note

    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


def _in_child(work: Callable[[], Any], ended: Any = None) -> Any:
    """Return what `work` returns in a forked child; `ended` when the child returns nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reader)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        if ended is not None:
            os.dup2(null, 2)
        try:
            result = pickle.dumps(work())
            with os.fdopen(writer, "wb") as out:
                out.write(result)
        finally:
            os._exit(0)
    os.close(writer)
    got = b""
    give_up = time.monotonic() + (WALL_SECONDS if ended is not None else 3_600.0)
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, give_up - time.monotonic()))
        piece = os.read(reader, 1 << 20) if ready else b""
        got += piece
        if not piece:
            break
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not got:
        assert ended is not None, "the run of all tests ended the process"
        return ended
    return pickle.loads(got)


def known_verdicts() -> dict[str, dict[str, str]]:
    """Return the kept survivors by key."""
    rows = json.loads(SURVIVORS.read_text()) if SURVIVORS.exists() else []
    return {row["key"]: row for row in rows}


def whole_of(key: str) -> str:
    """Return the row that stands for all of a module that nobody has looked at yet."""
    return f"{key.partition(':')[0]}:*"


def found_before() -> dict[str, str]:
    """Return which test noticed what, as far as earlier runs came; a later row wins."""
    lines = FOUND.read_text().splitlines() if FOUND.exists() else []
    return {row["key"]: row["by"] for row in map(json.loads, lines)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.mutants.mutation")
    parser.add_argument("modules", nargs="*", default=list(PACKAGES), help='as "raft.barrier"')
    parser.add_argument("--only", default="", help="changes whose name holds this text")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="files or folders")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests per change")
    parser.add_argument("--fresh", action="store_true", help="try again what was tried before")
    arguments = parser.parse_args()
    modules = modules_of(arguments.modules)
    work = [
        (f"{name}:{change.name}", path, change)
        for name, path in modules.items()
        for change in changes_of(path.read_text())
        if arguments.only in f"{name}:{change.name}"
    ]
    FOUND.parent.mkdir(exist_ok=True)
    done = {} if arguments.fresh else found_before()
    open_work = [each for each in work if each[0] not in done]
    if open_work:
        options = ["-p", "no:cacheprovider", "-p", "no:randomly", *arguments.tests]
        pytest.main(options, plugins=[Hunt(open_work, arguments.seconds)])
    return report([] if arguments.only else list(modules), [key for key, _, _ in work])


def report(modules: Sequence[str], keys: Sequence[str]) -> int:
    """Print what survived of these changes; 1 when a survivor has no verdict, or one is gone."""
    found, verdicts = found_before(), known_verdicts()
    survivors = [key for key in keys if found.get(key, NOT_REACHED) in ("", NOT_REACHED)]
    judged = {key: verdicts.get(key, verdicts.get(whole_of(key))) for key in survivors}
    new = [key for key, row in judged.items() if row is None]
    waiting = [key for key, row in judged.items() if row and row["verdict"] == NOT_JUDGED]
    wholes = {whole_of(key) for key in verdicts}
    known = [key for key in verdicts if key.partition(":")[0] in modules and key not in wholes]
    gone = sorted(set(known) - set(survivors))
    for key in new:
        print(f"no verdict: {key}")
    for key in gone:
        print(f"a verdict on what does not survive: {key}")
    print(
        f"{len(keys)} changes, {len(keys) - len(survivors)} noticed, {len(survivors)} survived: "
        f"{len(survivors) - len(new) - len(waiting)} judged, {len(waiting)} not judged, "
        f"{len(new)} new"
    )
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
