"""What happened in a run, one JSON line for each event, in the order in which the harness saw it.

Owns the format and the types. `history_file` writes and reads the file, `row_schema` checks what a
row may hold. A history is all that checkers get: anybody can judge it again at any time, without
the cluster (`python -m jepsen_tests check FILE`).

    {"dledger_history": 1, ...}      header: the run (Header)
    {"i": 1, "t": 81234, ...}        rows: what clients and the nemesis did (Row)
    {"end": 2, "t": 99999}           how many rows there are: without it the history is cut off

Each line ends with `,"crc":"xxxxxxxx"}`: CRC32C of the line before that, continued from the CRC of
the line before; so an edited, missing or doubled line is named.

An operation is a row `invoke` and at most one of `ok`, `fail` (certainly did not happen) or `info`
(may have happened, or may still happen); one without is `info`. A process does one operation at a
time. After an `info` a process number is not used again: whatever it did is concurrent with all
that follows; who goes on names it in the first row of its own (`before`).

A *place* is "topic/queue". Values are unique: "<process>-<counter>"; a resend alone has those of a
send before it, all of them, to the same place.

    f         k              v of invoke              v of ok
    send      place          [value, ...]             [offset of the first, term or 0], or
                                                      [null, 0]: stored, and it is forgotten where
    resend    place          the same send again, same producer id and sequence; else as send
    zombie-send place        a send of a producer that has a successor of which something is stored
                             already, so that it must be refused; else as send
    one-way   place          [value]                  - (handed over; nobody learns its outcome)
    delay     place          [value]                  when it is due, ns since the run began: a
                                                      message that is delivered at that time
    recall    place          value that was delayed   -
    handle    group@place    {"value","offset",       ["done", "failed" or "dead", when]: a listener
                             "read","consumer",       of a consumer group was called. `read` is
                             "order","epoch",         [place, offset] where the record was read,
                             "attempts","begun"}      `k` and `offset` where it came from. "dead":
                                                      it shall go to the dead letters. `begun` and
                                                      when: ns since the run began, by the consumer
    floors    group          -                        {place: floor, ...}: below it all is done
    caught-up group          -                        {place: end, ...}: the group has finished with
                                                      all below, and nothing waits to be retried
    letters   group          -                        [[place, offset, attempts, resent], ...]: the
                                                      dead letters by where the records came from
    letters-resent group     -                        how many were sent again
    assign    -              {place: offset, ...}     - (polls of this process continue there)
    poll      -              -                        [[place, offset, [value, ...]], ...]
    crash     -              -                        - (the process's client was thrown away)
    trim      place          offset                   new minimum
    bounds    place          -                        [minimum, maximum], confirmed by a quorum
    hold      place          {"owner","offset",       when the hold ends, ms since 1970
                             "ttl_ms"}
    release   place          owner                    -
    lookup    place          offset                   [[place, offset, value, store time], ...]
    lookup-key topic         key                      as lookup
    lookup-id topic          value whose message id   as lookup
                             is looked up
    by-time   place          store time               first offset stored at or after it
    stamps    place          -                        [[offset of the first, how many, store time],
                                                      ...]: all that is stored
    export    topic          number of the exporter's {"version","adopted","start","end","gaps",
                             session                  "lost","rows"}: `start` and `end` by place,
                                                      `gaps` [[place, start, end], ...], `lost`
                                                      those that the plan did not name, `rows` as
                                                      poll
    commit    group@place    offset                   - (refused OFFSET_BEHIND: fail)
    reset     group@place    offset                   - (a commit that may go back)
    committed group@place    -                        offset, or null when there is none
    set       register       number                   -
    get       register       -                        number, or null when there is none
    drain     place          -                        as poll: all that member `node` alone serves
    entries   -              -                        {"first": index, "terms": [...],
                                                       "crcs": [...], "applied": index,
                                                       "digest": "hex"} of `node`
    status    -              -                        {"role","term","leader","commit","applied",
                                                       "first","last","incarnation"} of `node`
    resources -              -                        {"rss","files","threads"} of `node`
    topics    -              -                        {topic: id, ...} as the group of `node`
                                                      has them

A value may end with "@" and the first key of its message. A value whose body did not match its own
checksum is shown as "!" and what was read in hex.
The nemesis is process -1: `f` is the fault, `k` the targets; `invoke` when it is begun, `ok` when
it is in force, `info` with `err` when it could not be (skipped). Healing is a fault named "heal".
Phases are rows of the nemesis with f = "phase" and k = "setup", "faults", "heal", "final". A member
that was found to have ended by itself is a row "died" with k = its name and err = "exit CODE" or
"exit CODE, life NUMBER". A run that was broken off in order ends with a row "interrupted", k = the
signal; its final phase has not begun, or is not whole. A member that applied nothing while others
did is a row "stood-still" with k = its name, err = for how long ("12.345 s"), and v = what was
compared: {"applied": index, "others": {member: [index at the start, at the end]}}.
"""

import enum
from typing import Any, Final

import msgspec

from jepsen_tests.history import row_schema

VERSION: Final = 1
NEMESIS: Final = row_schema.NEMESIS
SKIPPED: Final = "skipped: "
"""How the row of a fault that could not be done begins to say why."""
BROKEN_OFF: Final = "broken off: "
"""The same of one that was begun and not done to its end."""
INTERRUPTED: Final = "interrupted"
HEAL: Final = "heal"
EXAMINE: Final = "examine"
"""A fault that is none: a damaged member was ended, its files read, and mended if need be."""
WHOLE: Final = ("leader", "follower")
"""Roles of a member that is trusted and complete enough to take part."""
STOOD_STILL: Final = row_schema.STOOD_STILL
KEY_MARK: Final = "@"
"""Between what is unique in a value and the key of its message, for consumer groups that keep the
order of keys."""
NEVER: Final = (1 << 63) - 1
"""When an operation ended whose end nobody saw, in ns."""


def order_key_of(value: str) -> str:
    """Return the key by which a consumer group may keep a message in order; empty: none."""
    return value.partition(KEY_MARK)[2]


class Kind(enum.StrEnum):
    """What a row says of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, enough to run it again."""

    dledger_history: int = VERSION
    workload: str
    nemeses: tuple[str, ...]
    backend: str
    nodes: tuple[str, ...]
    seed: int
    seconds: float
    began: str
    """Wall-clock time, ISO 8601 with zone."""
    product: str
    """Version and, when it is known, the commit of what was tested."""
    mutant: str = ""
    """A known bug that was put into the product on purpose."""
    settings: dict[str, str | int | float | bool] = {}
    """Members' configuration where it is not the default."""
    notes: dict[str, Any] = {}
    """What the workload's checkers need to know: topics, queues, budgets."""


class Row(msgspec.Struct, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """One event. `t` is in ns since the run began, on the harness's monotonic clock."""

    i: int
    t: int
    p: int
    type: Kind
    f: str
    k: str = ""
    v: Any = None
    key: str = ""
    """The ordering key of a send, in one life of its producer: sends of a key were handed over one
    after the other, by whatever processes, in the order of their rows."""
    node: str = ""
    err: str = ""
    before: int = -1
    """In the first row of a process: whose work it goes on with, under another number."""


class Op(msgspec.Struct, gc=False):
    """An operation of a client: what was asked, what came of it. Times in ns."""

    i: int
    """Number of the row that invoked it."""
    done: int
    """Number of the row that ended it; 0: none."""
    p: int
    f: str
    k: str
    asked: Any
    began: int
    ended: int
    """NEVER when the outcome is unknown: it may take effect at any later time."""
    outcome: Kind
    result: Any = None
    key: str = ""
    node: str = ""
    err: str = ""
    over: int = NEVER
    """When it was said to have ended, also with an unknown outcome; NEVER: nobody said so."""
    before: int = -1
    """Of a process's first: the process that went on as this one."""

    @property
    def is_ok(self) -> bool:
        """It happened."""
        return self.outcome is Kind.OK

    @property
    def is_failed(self) -> bool:
        """It certainly did not happen."""
        return self.outcome is Kind.FAIL


class History(msgspec.Struct, gc=False):
    """A whole run: `ops` in the order in which they were invoked, `faults` as they came."""

    header: Header
    ops: list[Op]
    faults: list[Row]
    ended: int
    """When the run was over, ns."""
