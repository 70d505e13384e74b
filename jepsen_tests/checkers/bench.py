"""How fast all checkers together judge a long history, against only parsing its file.

`python -m jepsen_tests.checkers.bench [OPERATIONS]` writes a valid history of a realistic mix into
a temporary folder (three nodes, 24 places, 30 clients at a time; every value is polled by two
consumers, by the final reader, and drained from each node), then by turns reads it once with
`read_rows` and judges it, each in a process of its own so that the peak memory is that of judging
alone. Medians count: machines are noisy.
"""

import heapq
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, cast

from jepsen_tests.checkers import judge
from jepsen_tests.checkers.shared.judgement import Valid, merged
from jepsen_tests.history.events import Header, Kind, Row
from jepsen_tests.history.history_file import HistoryWriter, read_history, read_rows

OPERATIONS: Final = 1_000_000
ROUNDS: Final = 3
RATIO_MIN: Final = 0.1
PEAK_MIB_MAX: Final = 2048
NODES: Final = ("n1", "n2", "n3")
PLACES: Final = tuple(f"t{topic}/{queue}" for topic in range(3) for queue in range(8))
PRODUCERS: Final = 20
CONSUMERS: Final = 10
RUN_MAX: Final = 32
DRAIN_MAX: Final = 2000
MIX: Final = (
    ("send", 48), ("commit", 8), ("committed", 4), ("bounds", 2), ("status", 2), ("set", 1),
    ("get", 1), ("resources", 1),
)  # fmt: skip

Answer = tuple[Kind, Any, str]


class Model:
    """A log that takes effect when an operation ends, which is within it: always valid."""

    def __init__(self, writer: HistoryWriter) -> None:
        self.random = Random(7)
        self.logs: dict[str, list[str]] = {place: [] for place in PLACES}
        self.offsets: dict[str, int] = {}
        self.registers: dict[str, int] = {}
        self.positions: dict[int, dict[str, int]] = {}
        self.ops = 0
        self.t = 0
        self._writer = writer
        self._sent = 0

    def row(self, p: int, kind: Kind, f: str, k: str = "", v: Any = None, **more: Any) -> None:
        """Write a row, some microseconds after the last one."""
        self.t += self.random.randrange(1000, 200_000)
        self._writer.append(Row(0, self.t, p, kind, f, k, v, **more))

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self.row(-1, Kind.OK, "phase", name)

    def begin(self, p: int, f: str) -> Callable[[], Answer]:
        """Invoke an operation; return what ends it."""
        k, v, key, node = "", cast("Any", None), "", ""
        place = self.random.choice(PLACES)
        if f == "send":
            count = 1 if self.random.random() < 0.8 else self.random.randrange(2, 9)
            key = f"key{p}" if p % 3 == 0 else ""
            k, v = PLACES[p % len(PLACES)] if key else place, self._values(p, count)
        elif f in ("commit", "committed"):
            k = f"g{p % 3}@{place}"
            v = self.offsets.get(k, 0) + self.random.randrange(100) if f == "commit" else None
        elif f in ("set", "get"):
            k, v = f"r{p % 5}", self.ops if f == "set" else None
        elif f == "bounds":
            k = place
        elif f in ("status", "resources"):
            node = self.random.choice(NODES)
        self.invoke(p, f, k, v, key=key, node=node)
        return lambda: self._end(f, k, v)

    def invoke(self, p: int, f: str, k: str = "", v: Any = None, **more: str) -> None:
        """Write the row that begins an operation."""
        self.ops += 1
        self.row(p, Kind.INVOKE, f, k, v, **more)

    def _values(self, p: int, count: int) -> list[str]:
        self._sent += count
        return [f"{p}-{self._sent - at}" for at in range(count, 0, -1)]

    def _end(self, f: str, k: str, v: Any) -> Answer:
        chance = self.random.random()
        if chance < 0.01:
            return Kind.FAIL, None, "UNAVAILABLE: nobody leads"
        unknown = chance < 0.02 and f in ("send", "commit", "set")
        if unknown and chance < 0.015:
            return Kind.INFO, None, "DEADLINE_EXCEEDED"
        result, error = self._effect(f, k, v)
        if error:
            return Kind.FAIL, None, error
        return (Kind.INFO, None, "DEADLINE_EXCEEDED") if unknown else (Kind.OK, result, "")

    def _effect(self, f: str, k: str, v: Any) -> tuple[Any, str]:
        if f == "send":
            self.logs[k] += v
            return [len(self.logs[k]) - len(v), 3], ""
        if f == "commit":
            if self.offsets.get(k, 0) > v:
                return None, "OFFSET_BEHIND"
            self.offsets[k] = v
        elif f == "set":
            self.registers[k] = v
        elif f in ("committed", "get"):
            return (self.offsets if f == "committed" else self.registers).get(k), ""
        elif f == "bounds":
            return [0, len(self.logs[k])], ""
        elif f == "resources":
            return {"rss": 100_000_000, "files": 40, "threads": 12}, ""
        elif f == "status":
            return self.status("n1"), ""
        return None, ""

    def status(self, role_of: str) -> dict[str, Any]:
        """Return what a member says of itself."""
        role = "leader" if role_of == "leader" else "follower"
        return {
            "role": role, "term": 3, "leader": "n1", "commit": self._sent, "applied": self._sent,
            "first": 1, "last": self._sent, "incarnation": 1,
        }  # fmt: skip

    def entries(self) -> dict[str, Any]:
        """Return what each member holds: its last entry, the others are trimmed."""
        at = self._sent
        return {"first": at, "terms": [3], "crcs": [at], "applied": at, "digest": "aa"}

    def poll(self, p: int, places: list[str]) -> list[list[Any]]:
        """Return what is new in up to four places of a consumer, and move on."""
        positions = self.positions.setdefault(p, dict.fromkeys(places, 0))
        runs: list[list[Any]] = []
        for place in self.random.sample(places, min(4, len(places))):
            at = positions[place]
            if values := self.logs[place][at : at + RUN_MAX]:
                runs.append([place, at, values])
                positions[place] = at + len(values)
        return runs


def _run(model: Model, operations: int) -> None:
    names = [f for f, _ in MIX]
    weights = [weight for _, weight in MIX]
    clients = list(range(PRODUCERS))
    idle = list(range(PRODUCERS + CONSUMERS))
    busy: list[tuple[int, int, int, str, Callable[[], Answer]]] = []
    while model.ops < operations:
        if idle:
            slot = idle.pop(model.random.randrange(len(idle)))
            if slot < PRODUCERS:
                p, f = clients[slot], model.random.choices(names, weights)[0]
                end = model.begin(p, f)
            else:
                p, f = 500_000 + slot, "poll"
                model.invoke(p, f)
                end = _polling(model, p, slot - PRODUCERS)
            heapq.heappush(busy, (model.ops + model.random.randrange(40), slot, p, f, end))
        while busy and (not idle or busy[0][0] <= model.ops):
            _, slot, p, f, end = heapq.heappop(busy)
            kind, result, error = end()
            model.row(p, kind, f, v=result, err=error)
            if kind is Kind.INFO:
                clients[slot] += PRODUCERS
            idle.append(slot)


def _polling(model: Model, p: int, number: int) -> Callable[[], Answer]:
    places = [place for at, place in enumerate(PLACES) if at % 5 == number % 5]
    return lambda: (Kind.OK, model.poll(p, places), "")


def _final(model: Model) -> None:
    model.phase("final")
    p = 900_000
    model.invoke(p, "assign", v=dict.fromkeys(PLACES, 0))
    model.row(p, Kind.OK, "assign")
    for place, log in model.logs.items():
        for runs in _runs(place, log):
            model.invoke(p, "poll")
            model.row(p, Kind.OK, "poll", v=runs)
        for node in NODES:
            model.invoke(p, "drain", place, node=node)
            model.row(p, Kind.OK, "drain", v=[run for runs in _runs(place, log) for run in runs])
        model.invoke(p, "send", place, [f"{p}-{place}"])
        model.row(p, Kind.OK, "send", v=[len(log), 3])
    for node in NODES:
        model.invoke(p, "status", node=node)
        model.row(p, Kind.OK, "status", v=model.status("leader" if node == "n1" else node))
        model.invoke(p, "entries", node=node)
        model.row(p, Kind.OK, "entries", v=model.entries())
        model.invoke(p, "resources", node=node)
        model.row(p, Kind.OK, "resources", v={"rss": 100_000_000, "files": 40, "threads": 12})


def _runs(place: str, log: list[str]) -> Iterator[list[list[Any]]]:
    for at in range(0, len(log), DRAIN_MAX):
        yield [[place, at, log[at : at + DRAIN_MAX]]]


def write(path: Path, operations: int) -> None:
    """Write a history of about so many operations."""
    header = Header(
        workload="bench", nemeses=(), backend="none", nodes=NODES, seed=7, seconds=0.0,
        began="1970-01-01T00:00:00Z", product="none",
        notes={"least_ok": {"send": [100, 0.5]}, "errors": [
            "UNAVAILABLE", "DEADLINE_EXCEEDED", "OFFSET_BEHIND"]},
    )  # fmt: skip
    with HistoryWriter(path, header) as writer:
        model = Model(writer)
        model.phase("faults")
        _run(model, operations)
        _final(model)
        writer.close(model.t)


def _measure(what: str, path: Path) -> dict[str, Any]:
    """Do one thing with the file, in this process; return its seconds and the peak memory."""
    began = time.process_time()  # others on the machine take from neither
    more: dict[str, Any] = {}
    if what == "parse":
        more["rows"] = sum(1 for _ in read_rows(path))
    else:
        history = read_history(path)
        more["read"] = time.process_time() - began
        judgements = judge(history)
        more["ops"] = len(history.ops)
        more["verdict"] = merged(judgements)
        more["found"] = [found.text for each in judgements for found in each.findings][:5]
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak_mib": peak, **more}


def _in_own_process(what: str, path: Path, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "jepsen_tests.checkers.bench", what, str(path), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return cast("dict[str, Any]", json.loads(done.stdout or "{}"))


class Measured(NamedTuple):
    """What came of it."""

    operations: int
    lines: int
    size_mib: float
    verdict: str
    parsed_seconds: float
    judged_seconds: float
    read_seconds: float
    """Of these, for reading. Medians, like the two before."""
    ratios: list[float]
    peak_mib: float
    said: list[str]
    """Findings: there should be none."""

    @property
    def ratio(self) -> float:
        """How fast it is judged, against only parsing the file: the median over the rounds."""
        return statistics.median(self.ratios)

    @property
    def is_enough(self) -> bool:
        """Say whether it is as fast and as small as promised, and valid."""
        return (
            self.ratio >= RATIO_MIN and self.peak_mib <= PEAK_MIB_MAX and self.verdict == Valid.YES
        )

    def describe(self) -> str:
        """Return it as text."""
        return (
            f"{self.operations} operations, {self.lines} lines, {self.size_mib:.0f} MiB: "
            f"{self.verdict}\n"
            f"parse  {self.parsed_seconds:7.2f} s\n"
            f"judge  {self.judged_seconds:7.2f} s, of which reading {self.read_seconds:.2f} s\n"
            f"speed of parsing {self.ratio:.3f} (at least {RATIO_MIN}), by rounds "
            f"{', '.join(f'{ratio:.3f}' for ratio in self.ratios)}\n"
            f"peak   {self.peak_mib:7.0f} MiB (at most {PEAK_MIB_MAX})\n"
            + "".join(f"found  {text}\n" for text in self.said)
        )


def measure(operations: int, rounds: int = ROUNDS) -> Measured:
    """Write a history of about so many operations, parse and judge it by turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        _in_own_process("write", path, str(operations))
        pairs = [
            (_in_own_process("parse", path), _in_own_process("judge", path)) for _ in range(rounds)
        ]
        size = path.stat().st_size / (1 << 20)
    last = pairs[-1][1]
    parsed = [each["seconds"] for each, _ in pairs]
    judged = [each["seconds"] for _, each in pairs]
    median = statistics.median
    return Measured(
        last["ops"], pairs[-1][0]["rows"], size, last["verdict"], median(parsed), median(judged),
        median(each["read"] for _, each in pairs),
        [one / other for one, other in zip(parsed, judged, strict=True)],
        max(each["peak_mib"] for _, each in pairs), last["found"],
    )  # fmt: skip


def main(args: list[str]) -> int:
    """Measure, or do the part that a process of its own is started for; return the exit code."""
    if args and args[0] == "write":
        write(Path(args[1]), int(args[2]))
        return 0
    if args and args[0] in ("parse", "judge"):
        sys.stdout.write(json.dumps(_measure(args[0], Path(args[1]))))
        return 0
    found = measure(int(args[0]) if args else OPERATIONS)
    sys.stdout.write(found.describe())
    return 0 if found.is_enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
