"""What each line of a history may hold: checked when a file is read, before any checker looks.

Owns one table: for each function what `k` names, what `v` is when it is invoked and when it is ok.
A row that does not fit is described by its field, the value, and what is allowed; its line is named
by who reads. Rows are also held against those before: time goes on, a value is sent once and only
repeated as it was, an operation ends where it began.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import defstruct

if TYPE_CHECKING:
    from jepsen_tests.history.events import Row  # which imports this module

NEMESIS: Final = -1
STOOD_STILL: Final = "stood-still"
PHASES: Final = ("setup", "faults", "heal", "final")
VALUE_SHOWN_MAX: Final = 120
T_MAX: Final = 31 * 86_400 * 1_000_000_000
"""ns: several times the longest run; figures by the second are made of it."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Value = Annotated[str, msgspec.Meta(min_length=1)]
Values = Annotated[list[Value], msgspec.Meta(min_length=1)]
SentValue = Annotated[str, msgspec.Meta(min_length=1, pattern="^[^!]")]
"""A "!" in front marks what was read damaged."""
SentValues = Annotated[list[SentValue], msgspec.Meta(min_length=1)]
Runs = list[tuple[str, Natural, Values]]
_NAME: Final = "[%|a-zA-Z0-9_-]+"
"""What names of topics and consumer groups consist of, as in `dledger_proto.names`."""
_PLACE: Final = rf"{_NAME}/(?:0|[1-9][0-9]*)"
Place = Annotated[str, msgspec.Meta(pattern=rf"^{_PLACE}\Z")]
OfGroup = Annotated[str, msgspec.Meta(pattern=rf"^{_NAME}@{_PLACE}\Z")]


class Entries(msgspec.Struct):
    """What `entries` found."""

    first: Natural
    terms: list[Natural]
    crcs: list[Natural]
    applied: Natural
    digest: str

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.crcs):
            raise ValueError(f"{len(self.terms)} terms and {len(self.crcs)} crcs")


class Status(msgspec.Struct):
    """What `status` found."""

    role: Value
    term: Natural
    leader: str
    commit: Natural
    applied: Natural
    first: Natural
    last: Natural
    incarnation: str | int


class Resources(msgspec.Struct):
    """What `resources` found."""

    rss: Natural
    files: Natural
    threads: Natural


class Compared(msgspec.Struct):
    """What members had applied while one stood still."""

    applied: Natural
    others: Annotated[dict[str, tuple[Natural, Natural]], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        for other, (start, end) in self.others.items():
            if not self.applied < start < end:
                raise ValueError(f"{other} went from {start} to {end}, from {self.applied} on")


class HoldAsked(msgspec.Struct):
    """What `hold` asks for."""

    owner: Value
    offset: Natural
    ttl_ms: Annotated[int, msgspec.Meta(gt=0)]


class Exported(msgspec.Struct):
    """What a run of an export published, and what lies in the files that it added."""

    version: Natural
    adopted: bool
    start: dict[Place, Natural]
    end: dict[Place, Natural]
    gaps: list[tuple[Place, Natural, Natural]]
    lost: list[tuple[Place, Natural, Natural]]
    """Of the gaps those that the plan did not name."""
    rows: Runs

    def __post_init__(self) -> None:
        for place, end in self.end.items():
            if not self.start.get(place, 0) <= end:
                raise ValueError(f"{place} from {self.start[place]} to {end}")


class Handled(msgspec.Struct):
    """What a listener of a consumer group was called with (`handle`)."""

    value: Value
    offset: Natural
    """Of the record where it came from its producer."""
    read: tuple[Place, Natural]
    """Where it was read: there, or in the retry topic."""
    consumer: Value
    order: Annotated[str, msgspec.Meta(pattern="^(concurrent|queue|key)$")]
    epoch: Natural
    attempts: Natural
    begun: Natural


class Letter(msgspec.Struct, array_like=True):
    """One dead letter that nobody has settled (`letters`)."""

    place: Place
    offset: Natural
    attempts: Natural
    resent: Natural


class Notes(msgspec.Struct):
    """Of the header's notes those that checkers read."""

    budgets: dict[str, float] = {}
    errors: list[str] | None = None
    others_write: bool = False
    groups: dict[str, tuple[list[str], list[Place]]] = {}
    """By broker group its members and its queues, the control group first; empty: one group."""
    least_ok: dict[str, tuple[Natural, Annotated[float, msgspec.Meta(ge=0, le=1)]]] = {}


class FieldType:
    """A type, and how it is called in a message."""

    def __init__(self, type_: Any, said: str) -> None:
        self.said = said
        # A class remembers how its fields are converted; of a bare type it is found anew each time.
        self._holder = (
            None
            if type_ is None
            else defstruct("Holder", [("v", type_)], array_like=True, gc=False)
        )

    def fits(self, value: Any) -> bool:
        """Say whether a value is of it."""
        if self._holder is None:
            return value is None
        try:
            msgspec.convert((value,), self._holder)
        except msgspec.ValidationError:
            return False
        return True


NOTHING: Final = FieldType(None, "null")
PLACE: Final = FieldType(Place, 'a place: "topic/queue"')
OFFSET: Final = FieldType(Natural, "an offset: a number from 0 on")
SENT: Final = FieldType(SentValues, 'a list of values without "!" in front: ["1-1", ...]')
STORED: Final = FieldType(tuple[Natural, Natural], "[offset of the first value, term or 0]")
SENT_TO: Final = FieldType(
    tuple[Natural | None, Natural], "[offset of the first value, term or 0], or [null, 0]"
)
"""The latter: stored before by the same producer, whose new epoch knows that much alone. Only what
the public clients send; every workload does, in the final phase at least."""
READ: Final = FieldType(Runs, '[["topic/queue", offset of the first, ["value", ...]], ...]')
BOUNDS: Final = FieldType(
    tuple[Natural, Natural], "[minimum, maximum], the first not above the second"
)
NUMBER: Final = FieldType(Number, "a number of 64 bits")
MAYBE: Final = FieldType(Number | None, "a number or null")
REGISTER: Final = FieldType(
    Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z")], "the name of a register"
)
OF_GROUP: Final = FieldType(OfGroup, 'a register: "group@topic/queue"')
EMPTY: Final = FieldType(Annotated[str, msgspec.Meta(max_length=0)], "empty")
COMPARED: Final = FieldType(
    Compared, '{"applied": index, "others": {member: [a higher one, one higher still], ...}}'
)
ASSIGNED: Final = FieldType(dict[Place, Natural], '{"topic/queue": offset, ...}')
SENT_ONE: Final = FieldType(
    Annotated[list[SentValue], msgspec.Meta(min_length=1, max_length=1)],
    'one value without "!" in front: ["1-1"]',
)
TOPIC: Final = FieldType(
    Annotated[str, msgspec.Meta(pattern=rf"^{_NAME}\Z")], "the name of a topic or consumer group"
)
TEXT: Final = FieldType(Value, "a text that is not empty")
FOUND: Final = FieldType(
    list[tuple[str, Natural, Value, Number]], '[["topic/queue", offset, "value", store time], ...]'
)
STAMPS: Final = FieldType(
    list[tuple[Natural, Annotated[int, msgspec.Meta(gt=0)], Number]],
    "[[offset of the first, how many, store time], ...]",
)
HOLD: Final = FieldType(HoldAsked, '{"owner": name, "offset": number, "ttl_ms": above 0}')
EXPORTED: Final = FieldType(Exported, "version, adopted, start, end, gaps, lost, rows")
TOPICS: Final = FieldType(dict[Value, Value], "{topic: id, ...}")
DUE: Final = FieldType(Natural, "when it is due, ns since the run began")
HANDLED: Final = FieldType(Handled, "value, offset, read, consumer, order, epoch, attempts, begun")
SAID: Final = FieldType(
    tuple[Annotated[str, msgspec.Meta(pattern="^(done|failed|dead)$")], Natural],
    '["done", "failed" or "dead", when, in ns since the run began]',
)
LETTERS: Final = FieldType(list[Letter], "[[place, offset, attempts, resent], ...]")


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Of one function."""

    k: FieldType
    asked: FieldType
    found: FieldType
    of_member: bool = False
    """`node` names a member."""


ROW_SCHEMAS: Final[Mapping[str, RowSchema]] = {
    "send": RowSchema(PLACE, SENT, SENT_TO),
    "resend": RowSchema(PLACE, SENT, STORED),
    "zombie-send": RowSchema(PLACE, SENT, SENT_TO),
    "one-way": RowSchema(PLACE, SENT_ONE, NOTHING),
    "lookup": RowSchema(PLACE, OFFSET, FOUND),
    "lookup-key": RowSchema(TOPIC, TEXT, FOUND),
    "lookup-id": RowSchema(TOPIC, TEXT, FOUND),
    "by-time": RowSchema(PLACE, NUMBER, OFFSET),
    "stamps": RowSchema(PLACE, NOTHING, STAMPS),
    "hold": RowSchema(PLACE, HOLD, NUMBER),
    "release": RowSchema(PLACE, TEXT, NOTHING),
    "export": RowSchema(TOPIC, OFFSET, EXPORTED),
    "topics": RowSchema(EMPTY, NOTHING, TOPICS, of_member=True),
    "delay": RowSchema(PLACE, SENT_ONE, DUE),
    "recall": RowSchema(PLACE, TEXT, NOTHING),
    "handle": RowSchema(OF_GROUP, HANDLED, SAID),
    "floors": RowSchema(TOPIC, NOTHING, ASSIGNED),
    "caught-up": RowSchema(TOPIC, NOTHING, ASSIGNED),
    "letters": RowSchema(TOPIC, NOTHING, LETTERS),
    "letters-resent": RowSchema(TOPIC, NOTHING, OFFSET),
    "assign": RowSchema(EMPTY, ASSIGNED, NOTHING),
    "poll": RowSchema(EMPTY, NOTHING, READ),
    "crash": RowSchema(EMPTY, NOTHING, NOTHING),
    "trim": RowSchema(PLACE, OFFSET, OFFSET),
    "bounds": RowSchema(PLACE, NOTHING, BOUNDS),
    "commit": RowSchema(OF_GROUP, OFFSET, NOTHING),
    "reset": RowSchema(OF_GROUP, OFFSET, NOTHING),
    "committed": RowSchema(OF_GROUP, NOTHING, MAYBE),
    "set": RowSchema(REGISTER, NUMBER, NOTHING),
    "get": RowSchema(REGISTER, NOTHING, MAYBE),
    "drain": RowSchema(PLACE, NOTHING, READ, of_member=True),
    "entries": RowSchema(
        EMPTY, NOTHING,
        FieldType(Entries, "first, terms, crcs (as many), applied, digest"), of_member=True,
    ),
    "status": RowSchema(
        EMPTY, NOTHING,
        FieldType(Status, "role, term, leader, commit, applied, first, last, incarnation"),
        of_member=True,
    ),
    "resources": RowSchema(
        EMPTY, NOTHING, FieldType(Resources, "rss, files, threads"), of_member=True
    ),
}  # fmt: skip


class RowChecker:
    """Looks at the rows of one history, in order; they are known to pair."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self._nodes = nodes
        self._t = 0
        self._sent: dict[str, tuple[str, list[str]]] = {}
        """Of each value the place and the list of values it was sent in."""
        self._places: set[str] = set()
        """That were found to be good, in what was read."""
        self._asked: dict[int, tuple[str, str]] = {}
        """Of each process `k` and `node` of its last invocation."""
        self._keys: set[tuple[str, str]] = set()
        """Of functions, as far as they were found to be good: there are few, in many rows."""

    def wrong(self, row: "Row") -> str:
        """Return what is wrong with the next row, empty if nothing is."""
        if not self._t <= row.t <= T_MAX:
            return self.wrong_time(row.t)
        self._t = row.t
        if row.p == NEMESIS:
            return self._wrong_of_nemesis(row)
        if row.p < NEMESIS:
            return f"p is {row.p}, allowed are process numbers from 0 on, and -1 for the nemesis"
        shape = ROW_SCHEMAS.get(row.f)
        if shape is None:
            return f"f is {_shown(row.f)}, allowed are {_names(row.f, ROW_SCHEMAS)}"
        if row.before != -1 and (wrong := self._wrong_of_before(row)):
            return wrong
        if row.type == "invoke":
            self._asked[row.p] = row.k, row.node
            return self._wrong_of_invocation(row, shape)
        if row.k or row.node:
            k, node = self._asked[row.p]
            for field, said, asked in (("k", row.k, k), ("node", row.node, node)):
                if said not in ("", asked):
                    return f"{field} of {row.f} ({row.type}) is {_shown(said)}, it began as {asked}"
        allowed = shape.found if row.type == "ok" else NOTHING
        if not allowed.fits(row.v):
            return _unlike("v", row.v, allowed, row)
        return self._wrong_of_result(row) if row.v is not None else ""

    def wrong_time(self, t: int) -> str:
        """Return what is wrong with the time of what comes next."""
        if t < self._t:
            return f"t is {t}, allowed is {self._t} or later: time does not go back"
        if t > T_MAX:
            return f"t is {t}, allowed is at most {T_MAX}: a run does not take so long"
        self._t = t
        return ""

    def _wrong_of_before(self, row: "Row") -> str:
        is_first = row.type == "invoke" and row.p not in self._asked
        if is_first and row.before in self._asked:
            return ""
        return (
            f"before of {row.f} ({row.type}) is {row.before}, allowed is in a process's first row "
            "a process of earlier rows"
        )

    def _wrong_of_result(self, row: "Row") -> str:
        if row.f in ("send", "zombie-send") and row.v[0] is None and row.v[1]:
            return f"v of {row.f} (ok) is {_shown(row.v)}, allowed is {SENT_TO.said}"
        if row.f == "bounds" and row.v[0] > row.v[1]:
            return f"v of bounds (ok) is {_shown(row.v)}, allowed is {BOUNDS.said}"
        if row.f == "drain":
            place = self._asked[row.p][0]
            other = next((run[0] for run in row.v if run[0] != place), None)
            return "" if other is None else _unlike_place(other, row, place)
        if row.f in ("poll", "lookup", "lookup-key", "lookup-id"):
            for run in row.v:
                if run[0] not in self._places:
                    if not PLACE.fits(run[0]):
                        return _unlike_place(run[0], row, PLACE.said)
                    self._places.add(run[0])
        return ""

    def _wrong_of_values(self, row: "Row") -> str:
        if row.f == "resend":
            if self._sent.get(row.v[0]) == (row.k, row.v):
                return ""
            return f"v of resend is {_shown(row.v)}, allowed is what was sent to {row.k} before"
        values, sent = row.v, (row.k, row.v)
        is_new = len(values) == 1 or len(set(values)) == len(values)
        for value in values:
            is_new = is_new and self._sent.setdefault(value, sent) is sent
        if is_new:
            return ""
        return f"v of {row.f} is {_shown(values)}, allowed are values that were never sent before"

    def _wrong_of_invocation(self, row: "Row", shape: RowSchema) -> str:
        if (row.node or shape.of_member) and row.node not in self._nodes:
            return f"node of {row.f} is {_shown(row.node)}, allowed are {', '.join(self._nodes)}"
        if (row.f, row.k) not in self._keys:
            if not shape.k.fits(row.k):
                return _unlike("k", row.k, shape.k, row)
            self._keys.add((row.f, row.k))
        if not shape.asked.fits(row.v):
            return _unlike("v", row.v, shape.asked, row)
        return self._wrong_of_values(row) if shape.asked in (SENT, SENT_ONE) else ""

    def _wrong_of_nemesis(self, row: "Row") -> str:
        if row.f == "phase" and row.k not in PHASES:
            return f"k of a phase is {_shown(row.k)}, allowed are {', '.join(PHASES)}"
        if not re.fullmatch(r"[\w-]+", row.f):
            return f"f of the nemesis is {_shown(row.f)}, allowed is the name of a fault"
        if row.type == "fail":
            return f"type of the nemesis's {row.f} is fail, allowed are invoke, ok and info"
        if row.f == "died" and row.k not in self._nodes:
            return f"k of died is {_shown(row.k)}, allowed are {', '.join(self._nodes)}"
        if row.f == STOOD_STILL:
            return self._wrong_of_standstill(row)
        return "" if row.v is None else _unlike("v", row.v, NOTHING, row)

    def _wrong_of_standstill(self, row: "Row") -> str:
        if row.k not in self._nodes:
            return f"k of {row.f} is {_shown(row.k)}, allowed are {', '.join(self._nodes)}"
        if not re.fullmatch(r"\d{1,9}(\.\d{1,3})? s", row.err, re.ASCII):
            return f"err of {row.f} is {_shown(row.err)}, allowed are seconds: 12.345 s"
        if not COMPARED.fits(row.v):
            return _unlike("v", row.v, COMPARED, row)
        strange = next((other for other in row.v["others"] if other not in self._nodes), row.k)
        if strange != row.k or row.k in row.v["others"]:
            others = ", ".join(node for node in self._nodes if node != row.k)
            return f"v of {row.f} names {_shown(strange)}, allowed are {others}"
        return ""


def wrong_notes(notes: Mapping[str, Any]) -> str:
    """Return what is wrong with the notes of a header, empty if nothing is."""
    try:
        msgspec.convert(notes, Notes)
    except msgspec.ValidationError as error:
        return f"notes: {error}"
    return ""


def _unlike(field: str, value: Any, what: FieldType, row: "Row") -> str:
    return f"{field} of {row.f} ({row.type}) is {_shown(value)}, allowed is {what.said}"


def _unlike_place(name: str, row: "Row", allowed: str) -> str:
    return f"the place of a run of {row.f} is {_shown(name)}, allowed is {allowed}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}..."


def _names(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did somebody mean {near[0]}, or is it of a newer program?" if near else ""
    return ", ".join(known) + hint
