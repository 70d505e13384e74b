"""One anomaly of each class, put into a valid history.

An injection changes a story in place and returns whether it found a place for it. With each stands
what must be named and what may be named as well because it follows from it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from jepsen_tests.history.events import Kind, Op, Row
from jepsen_tests.history.history_file import Pairing
from tests.unit.jepsen.model import PLACES
from tests.unit.jepsen.stories import READER, Story

Pair = tuple[str, int, str]
"""Place, offset, value."""


@dataclass(frozen=True)
class Injection:
    """How to break a history, and how that must and may be named."""

    must: frozenset[str]
    may: frozenset[str]
    into: Callable[["Broken"], bool]
    with_kept: bool
    """Into a history with lookups, times, holds, exports, consumer groups: they show what others
    show, too."""


INJECTIONS: dict[str, Injection] = {}


def names(
    *must: str, may: str = "", with_kept: bool = False
) -> Callable[[Callable[["Broken"], bool]], None]:
    def register(into: Callable[[Broken], bool]) -> None:
        INJECTIONS[into.__name__] = Injection(
            frozenset(must), frozenset(may.split()), into, with_kept
        )

    return register


class Broken:
    """A story that is to be broken, and what injections need to know of it."""

    def __init__(self, story: Story, random: Random) -> None:
        self.story, self.random = story, random
        self.rows = story.rows
        pairing = Pairing()
        for row in self.rows:
            pairing.take(row)
        self.ops = pairing.history(story.head, 0).ops
        self.final = next(row.i for row in self.rows if row.k == "final")
        self.floor = dict.fromkeys(PLACES, 0)
        for op in self.of("trim", "bounds"):
            if op.f == "trim" and not op.is_failed:
                self.floor[op.k] = max(self.floor[op.k], op.asked, op.result or 0)
            elif op.is_ok and op.f == "bounds":
                self.floor[op.k] = max(self.floor[op.k], op.result[0])
        self.log = {
            place: {at: value for op in self.reads() for p, at, value in pairs(op) if p == place}
            for place in PLACES
        }
        retried = [value for op in self.of("resend") for value in op.asked]
        self.once = [op for op in self.of("send") if op.asked[0] not in retried]
        """Sends that nobody repeated."""

    def of(self, *functions: str) -> list[Op]:
        return [op for op in self.ops if op.f in functions]

    def reads(self, *, final: bool | None = None) -> list[Op]:
        return [
            op
            for op in self.of("poll", "drain")
            if op.is_ok and (final is None or final == (op.i > self.final))
        ]

    def pick(self, found: list[Any]) -> Any:
        return self.random.choice(found) if found else None

    def acked(self) -> list[Op]:
        """Return single acknowledged sends of before the end that are in the final reads."""
        return [
            op
            for op in self.once
            if op.is_ok and op.done < self.final and len(op.asked) == 1
            and op.result[0] is not None
            and self.floor[op.k] <= op.result[0] < self.end(op.k) - 1
        ]  # fmt: skip

    def end(self, place: str) -> int:
        return max(self.log[place], default=-1) + 1

    def row(self, op: Op) -> Row:
        return self.rows[op.done - 1]

    def rewrite(self, ops: list[Op], change: Callable[[Pair], list[Pair]]) -> None:
        """Replace what reads returned, value by value."""
        for op in ops:
            self.row(op).v = runs([new for old in pairs(op) for new in change(old)])

    def append_at_end(self, place: str, value: str) -> bool:
        """Let all reads of the end of a place go on to one more value."""
        end = self.end(place)
        added = (place, end, value)
        self.rewrite(
            self.reads(), lambda old: [old, added] if old[:2] == (place, end - 1) else [old]
        )
        return end > self.floor[place]

    def chunk(self) -> Op | None:
        """Return the second or a later poll of the final reader in a place, of some values."""
        polls = [op for op in self.of("poll") if op.p == READER]
        later = [
            op
            for before, op in pairwise(polls)
            if before.result[0][0] == op.result[0][0] and len(op.result[0][2]) > 2
        ]
        found: Op | None = self.pick(later)
        return found

    def member(self, f: str, at: int = -1) -> dict[str, Any]:
        """Return what a member said in the end."""
        found: dict[str, Any] = [op for op in self.of(f) if op.i > self.final and op.is_ok][
            at
        ].result
        return found


def pairs(op: Op) -> Iterator[Pair]:
    for place, offset, values in op.result:
        for at, value in enumerate(values, offset):
            yield place, at, value


def runs(read: list[Pair]) -> list[list[Any]]:
    """Join values at consecutive offsets; runs that follow each other anyway become one."""
    found: list[list[Any]] = []
    for place, offset, value in read:
        if found and found[-1][0] == place and found[-1][1] + len(found[-1][2]) == offset:
            found[-1][2].append(value)
        else:
            found.append([place, offset, [value]])
    return found


def without(*gone: str) -> Callable[[Pair], list[Pair]]:
    return lambda pair: [] if pair[2] in gone else [pair]


# Loss.


@names("lost", may="lost-write poll-skip int-poll-skip")
def lose_from_the_middle(b: Broken) -> bool:
    op = b.pick(b.acked())
    if op:
        b.rewrite(b.reads(), without(op.asked[0]))
    return bool(op)


@names("lost-write", may="poll-skip int-poll-skip")
def lose_and_stop_before_the_end(b: Broken) -> bool:
    polled = {
        pair[:2] for op in b.of("poll") if op.is_ok and op.done < b.final for pair in pairs(op)
    }
    both = [
        op for op in b.acked()
        if {(op.k, op.result[0] - 1), (op.k, op.result[0]), (op.k, op.result[0] + 1)} <= polled
    ]  # fmt: skip
    op = b.pick([op for op in both if _went_through(b, op)])
    if op:
        b.rewrite(b.reads(), without(op.asked[0]))
        del b.rows[b.final - 1 :]
    return bool(op)


def _went_through(b: Broken, op: Op) -> bool:
    """Say whether some run of a poll has the value in its middle."""
    return any(
        run[0] == op.k and run[1] < op.result[0] < run[1] + len(run[2]) - 1
        for poll in b.of("poll")
        if poll.is_ok and poll.done < b.final
        for run in poll.result
    )


@names("unseen", may="not-live")
def lose_the_end(b: Broken) -> bool:
    op = b.pick(b.acked())
    if op:
        b.rewrite(
            b.reads(), lambda pair: [] if pair[0] == op.k and pair[1] >= op.result[0] else [pair]
        )
    return bool(op)


@names("lost-on-node")
def lose_on_one_member(b: Broken) -> bool:
    op = b.pick(b.acked())
    if op:
        drains = [each for each in b.of("drain") if each.k == op.k and each.i > b.final]
        b.rewrite([b.pick(drains[-3:])], without(op.asked[0]))
    return bool(op)


@names("un-read", "lost", may="lost-write poll-skip int-poll-skip")
def take_back_what_was_read(b: Broken) -> bool:
    before = {value for op in b.reads(final=False) for _, _, value in pairs(op)}
    op = b.pick([op for op in b.acked() if op.asked[0] in before])
    if op:
        b.rewrite(b.reads(final=True), without(op.asked[0]))
    return bool(op)


# Offsets and contents.


@names("inconsistent-offset", may="lost real-time key-order lost-write")
def show_another_value(b: Broken) -> bool:
    # What never was visible is proven now, at an offset where it cannot be.
    seen = {value for log in b.log.values() for value in log.values()}
    ghost = b.pick([op for op in b.once if op.outcome is Kind.INFO and not seen & set(op.asked)])
    poll = ghost and b.pick(
        [op for op in b.reads(final=False) if any(run[0] == ghost.k for run in op.result)]
    )
    if not poll:
        return False
    place, at, _ = b.pick([pair for pair in pairs(poll) if pair[0] == ghost.k])
    shown = (place, at, ghost.asked[0])
    b.rewrite([poll], lambda pair: [shown] if pair[:2] == (place, at) else [pair])
    others = [
        op for op in b.reads() if op is not poll and (place, at) in {p[:2] for p in pairs(op)}
    ]
    return bool(others) and len(ghost.asked) == 1


@names("duplicate")
def store_again(b: Broken) -> bool:
    op = b.pick(b.acked())
    return bool(op) and b.append_at_end(op.k, op.asked[0])


@names("aborted-read")
def say_that_it_was_refused(b: Broken) -> bool:
    op = b.pick(b.acked())
    if op:
        row = b.row(op)
        row.type, row.v, row.err = Kind.FAIL, None, "NOT_LEADER"
    return bool(op)


@names("fenced-write")
def say_that_its_producer_was_fenced(b: Broken) -> bool:
    op = b.pick([op for op in b.acked() if not op.key])
    if op:
        b.rows[op.i - 1].f = b.row(op).f = "zombie-send"
    return bool(op)


@names("phantom")
def show_what_nobody_sent(b: Broken) -> bool:
    return b.append_at_end(b.random.choice(PLACES), "999-1")


@names("misplaced")
def show_it_elsewhere(b: Broken) -> bool:
    op = b.pick(b.acked())
    return bool(op) and b.append_at_end(
        b.pick([place for place in PLACES if place != op.k]), op.asked[0]
    )


@names("corrupt")
def damage_bytes(b: Broken) -> bool:
    poll = b.pick([op for op in b.reads() if op.result])
    if poll:
        bad = b.pick(list(pairs(poll)))
        b.rewrite([poll], lambda pair: [(*pair[:2], "!00")] if pair == bad else [pair])
        b.story.op(95, "assign", v={bad[0]: bad[1]})  # another reader gets it undamaged
        b.story.op(95, "poll", result=[[bad[0], bad[1], [bad[2]]]])
        for node in ("n1", "n2", "n3"):
            runs = [[place, at, list(values)] for place, at, values in _last_drain(b, bad[0])]
            b.story.on(node, "drain", runs, bad[0])
    return bool(poll) and bad[1] >= b.floor[bad[0]]


def _last_drain(b: Broken, place: str) -> list[Any]:
    log = b.log[place]
    return runs([(place, at, log[at]) for at in sorted(log) if at >= b.floor[place]])


@names("wrong-reply", may="nonmonotonic-send stale-bounds")
def reply_with_another_offset(b: Broken) -> bool:
    op = b.pick(b.acked())
    if op:
        b.row(op).v = [op.result[0] + 10_000, 1]
    return bool(op)


@names("split-batch", may="inconsistent-offset")
def turn_a_batch_round(b: Broken) -> bool:
    seen = {value for log in b.log.values() for value in log.values()}
    op = b.pick([op for op in b.of("send") if len(op.asked) > 1 and set(op.asked) <= seen])
    if op:
        turned = dict(zip(op.asked, reversed(op.asked), strict=True))
        b.rewrite(b.reads(), lambda pair: [(*pair[:2], turned.get(pair[2], pair[2]))])
    return bool(op)


@names("gap", may="high-bounds")
def leave_a_hole(b: Broken) -> bool:
    op = b.pick([op for op in b.acked() if op.result[0] > b.floor[op.k]])
    if not op:
        return False
    at = op.result[0]

    def moved(place: str, offset: int) -> int:
        return offset + 1 if place == op.k and offset >= at else offset

    b.rewrite(b.reads(), lambda pair: [(pair[0], moved(*pair[:2]), pair[2])])
    for each in b.of("send", "resend"):
        if each.is_ok and each.result[0] is not None:
            b.row(each).v = [moved(each.k, each.result[0]), 1]
    for each in b.of("bounds"):
        if each.is_ok:
            b.row(each).v = [each.result[0], moved(each.k, each.result[1])]
    for each in b.of("assign"):
        b.rows[each.i - 1].v = {place: moved(place, v) for place, v in each.asked.items()}
    return True


# Order.


def _swap(b: Broken, fits: Callable[[Op, Op], bool]) -> bool:
    acked = b.acked()
    found = [
        (first, second)
        for first in acked
        for second in acked
        if first.k == second.k and first.done < second.i and fits(first, second)
    ]
    pair = b.pick(found)
    if not pair:
        return False
    first, second = pair
    turned = {first.asked[0]: second.asked[0], second.asked[0]: first.asked[0]}
    b.rewrite(b.reads(), lambda pair: [(*pair[:2], turned.get(pair[2], pair[2]))])
    b.row(first).v, b.row(second).v = second.result, first.result
    return True


@names("real-time", may="nonmonotonic-send key-order stale-bounds")
def swap_two(b: Broken) -> bool:
    return _swap(b, lambda _, __: True)


@names("key-order", "real-time", may="nonmonotonic-send stale-bounds")
def swap_two_of_a_key(b: Broken) -> bool:
    return _swap(b, lambda first, second: bool(first.key) and first.key == second.key)


@names("nonmonotonic-send", "real-time", may="key-order stale-bounds")
def swap_two_of_a_process(b: Broken) -> bool:
    return _swap(b, lambda first, second: first.p == second.p)


@names("key-moved")
def move_a_key(b: Broken) -> bool:
    first = b.pick(b.acked())
    second = b.pick([op for op in b.acked() if first.k != op.k])
    if not second:
        return False
    b.rows[first.i - 1].key = b.rows[second.i - 1].key = "moved"
    return True


# Readers.


@names("poll-skip", may="lost-write")
def skip_the_first(b: Broken) -> bool:
    op = b.chunk()
    if not op:
        return False
    b.rewrite([op], without(op.result[0][2][0]))
    return bool(op.result[0][1] >= b.floor[op.result[0][0]])


@names("int-poll-skip", may="lost-write")
def skip_within(b: Broken) -> bool:
    op = b.chunk()
    if not op:
        return False
    b.rewrite([op], without(op.result[0][2][1]))
    return bool(op.result[0][1] >= b.floor[op.result[0][0]])


@names("nonmonotonic-poll")
def repeat_the_last(b: Broken) -> bool:
    op = b.chunk()
    if not op:
        return False
    [[place, at, values]] = op.result
    before = b.log[place][at - 1]
    b.row(op).v = [[place, at - 1, [before, *values]]]
    return True


@names("int-nonmonotonic-poll")
def repeat_within(b: Broken) -> bool:
    op = b.chunk()
    if not op:
        return False
    [[place, at, values]] = op.result
    b.row(op).v = [[place, at, values[:2]], [place, at, values]]
    return True


def _bounds(b: Broken) -> tuple[Op, Op] | None:
    asked = [op for op in b.of("bounds") if op.is_ok]
    found = [
        (first, second)
        for first in asked
        for second in asked
        if first.k == second.k and first.done < second.i and first.result[1] > 0
    ]
    pair: tuple[Op, Op] | None = b.pick(found)
    return pair


@names("bounds-back", may="stale-bounds")
def let_bounds_go_back(b: Broken) -> bool:
    pair = _bounds(b)
    if pair:
        b.row(pair[1]).v = [pair[1].result[0], pair[0].result[1] - 1]
    return bool(pair)


@names("high-bounds", may="bounds-back not-live")
def let_bounds_be_too_high(b: Broken) -> bool:
    op = b.pick([op for op in b.of("bounds") if op.is_ok])
    if op:
        begun = [value for each in b.of("send") if each.k == op.k for value in each.asked]
        b.row(op).v = [op.result[0], len(begun) + 1]
    return bool(op)


@names("over-trimmed", may="bounds-back")
def trim_too_much(b: Broken) -> bool:
    op = b.pick([op for op in b.of("trim") if op.is_ok and op.i < b.final])
    if op:
        b.row(op).v = max(each.asked for each in b.of("trim") if each.k == op.k) + 1
    return bool(op)


@names("stale-bounds", may="bounds-back")
def let_bounds_be_old(b: Broken) -> bool:
    found = [
        (op, sent)
        for op in b.of("bounds")
        for sent in b.acked()
        if op.is_ok and op.k == sent.k and sent.done < op.i
    ]
    pair = b.pick(found)
    if pair:
        b.row(pair[0]).v = [pair[0].result[0], pair[1].result[0]]
    return bool(pair)


@names("not-linearizable")
def read_what_nobody_wrote(b: Broken) -> bool:
    op = b.pick([op for op in b.of("get", "committed") if op.is_ok])
    if op:
        b.row(op).v = 424_242
    return bool(op)
