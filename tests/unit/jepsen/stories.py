"""A short way to write histories by hand.

One row per millisecond. An operation that is written as one line is invoked and ended at once;
`invoke` and `end` write overlapping ones. Values are given as words: "1-1 1-2".
"""

from typing import Any

from jepsen_tests.checkers import CHECKERS, judge
from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.history.events import NEMESIS, Header, History, Kind, Row
from jepsen_tests.history.history_file import Pairing

MS = 1_000_000
NODES = ("n1", "n2", "n3")
READER = 90
"""The process that does final reads."""


def header(**notes: Any) -> Header:
    """The header of a run that never was."""
    return Header(
        workload="story", nemeses=(), backend="none", nodes=NODES, seed=1, seconds=1.0,
        began="2030-01-01T00:00:00Z", product="story", notes=notes,
    )  # fmt: skip


def history_of(rows: list[Row], head: Header | None = None) -> History:
    """Pair rows; each must fit."""
    pairing = Pairing()
    for row in rows:
        wrong = pairing.take(row)
        assert not wrong, f"row {row.i}: {wrong}"
    return pairing.history(head or header(), rows[-1].t + MS if rows else 0)


class Story:
    """A history in the making."""

    def __init__(self, **notes: Any) -> None:
        self.rows: list[Row] = []
        self.head = header(**notes)
        self._open: dict[int, Row] = {}
        self._t = 0

    def row(self, p: int, kind: Kind, f: str, k: str = "", v: Any = None, **more: Any) -> Row:
        number = len(self.rows) + 1
        self._t += MS
        row = Row(number, self._t, p, kind, f, k, v, **more)
        self.rows.append(row)
        return row

    def wait(self, ms: int) -> "Story":
        """Let time pass."""
        self._t += ms * MS
        return self

    def invoke(self, p: int, f: str, k: str = "", v: Any = None, **more: Any) -> "Story":
        self._open[p] = self.row(p, Kind.INVOKE, f, k, v, **more)
        return self

    def end(self, p: int, v: Any = None, kind: Kind = Kind.OK, err: str = "") -> "Story":
        began = self._open.pop(p)
        self.row(p, kind, began.f, v=v, err=err)
        return self

    def op(self, p: int, f: str, k: str = "", v: Any = None, result: Any = None) -> "Story":
        return self.invoke(p, f, k, v).end(p, result)

    @property
    def now(self) -> int:
        """When the last row was written, ns."""
        return self._t

    def call(self, p: int, group: str, place: str, offset: int, value: str, **more: Any) -> "Story":
        """Begin to call a listener of a consumer group; `more` replaces what it is told."""
        asked = {
            "value": value, "offset": offset, "read": [place, offset], "consumer": "c",
            "order": "queue", "epoch": 1, "attempts": 0, "begun": self._t + 1, **more,
        }  # fmt: skip
        return self.invoke(p, "handle", f"{group}@{place}", asked)

    def said(self, p: int, said: str) -> "Story":
        """End such a call; "": nobody knows how."""
        if not said:
            return self.end(p, kind=Kind.INFO, err="CANCELLED")
        return self.end(p, [said, self._t])

    def handle(
        self, p: int, group: str, place: str, offset: int, value: str, said: str, **more: Any
    ) -> "Story":
        """Call a listener, and let it end."""
        return self.call(p, group, place, offset, value, **more).said(p, said)

    def on(self, node: str, f: str, result: Any, k: str = "") -> "Story":
        """Ask one member something, by a process of its own."""
        p = 100 + int(node[1:])
        return self.invoke(p, f, k, node=node).end(p, result)

    def begin_send(self, p: int, words: str, k: str = "t/0", **more: Any) -> "Story":
        return self.invoke(p, "send", k, words.split(), **more)

    def send(self, p: int, words: str, at: int, k: str = "t/0", **more: Any) -> "Story":
        return self.begin_send(p, words, k, **more).end(p, [at, 1])

    def lose(self, p: int, words: str, k: str = "t/0", **more: Any) -> "Story":
        """A send of unknown outcome."""
        return self.begin_send(p, words, k, **more).end(p, kind=Kind.INFO, err="DEADLINE")

    def forget(self, p: int, words: str, k: str = "t/0", **more: Any) -> "Story":
        """A send that is stored, nobody remembers where."""
        return self.begin_send(p, words, k, **more).end(p, [None, 0])

    def refuse(self, p: int, words: str, k: str = "t/0") -> "Story":
        return self.begin_send(p, words, k).end(p, kind=Kind.FAIL, err="NOT_LEADER")

    def poll(self, p: int, *runs: tuple[int, str] | tuple[int, str, str]) -> "Story":
        """A poll; runs are (offset, values) of t/0, or with a place as the third."""
        return self.op(p, "poll", result=[_run(run) for run in runs])

    def assign(self, p: int, **offsets: int) -> "Story":
        """Assign places; t0 stands for t/0."""
        return self.op(p, "assign", v={f"{k[:-1]}/{k[-1]}": v for k, v in offsets.items()})

    def phase(self, name: str) -> "Story":
        self.row(NEMESIS, Kind.OK, "phase", name)
        return self

    def fault(self, f: str, k: str = "n1") -> "Story":
        self.row(NEMESIS, Kind.INVOKE, f, k)
        self.row(NEMESIS, Kind.OK, f, k)
        return self

    def died(self, node: str = "n1", how: str = "exit 65") -> "Story":
        """A member ended by itself."""
        self.row(NEMESIS, Kind.OK, "died", node, err=how)
        return self

    def final(
        self, words: str, first: int = 0, k: str = "t/0", nodes: tuple[str, ...] = ("n1", "n2")
    ) -> "Story":
        """The final phase: one reader from the start, and a drain of some members."""
        if not any(row.k == "final" for row in self.rows):
            self.phase("final")
        self.op(READER, "assign", v={k: first})
        runs = [[k, first, words.split()]] if words else []
        self.op(READER, "poll", result=runs)
        for node in nodes:
            self.on(node, "drain", runs, k)
        return self

    def history(self) -> History:
        history = history_of(self.rows, self.head)
        history.ended = self._t + MS
        return history


def _run(run: tuple[int, str] | tuple[int, str, str]) -> list[Any]:
    place = run[2] if len(run) == 3 else "t/0"
    return [place, run[0], run[1].split()]


def judged(history: History) -> dict[str, Judgement]:
    """Judge; judgements by the checker's number."""
    return {judgement.checker: judgement for judgement in judge(history)}


def kinds_of(history: History) -> set[str]:
    """Judge; the classes of all anomalies that any checker found."""
    judgements = judge(history)
    allowed = {checker.number: set(checker.kinds) for checker in CHECKERS}
    for judgement in judgements:
        assert judgement.kinds() <= allowed[judgement.checker], judgement.kinds()
        assert "looked_at" in judgement.facts, judgement.checker
    return {kind for judgement in judgements for kind in judgement.kinds()}


def texts_of(history: History) -> str:
    """Judge; all that was found, for messages."""
    return "\n".join(
        f"{judgement.checker} {finding.kind}: {finding.text} {finding.rows}"
        for judgement in judge(history)
        for finding in judgement.findings
    )
