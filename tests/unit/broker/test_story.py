"""The story of a record says what the state machine did.

Goal: a story judges each command as apply does, over retries, dead letters, resets, delays. Method:
a machine applies hand-made entries, and the story is told from the same entries, with its cursor
after each. A model test compares what is done with the machine's own row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.state.commands.registry import decode
from dledger.state.consumers.settings import ConsumeOrder, StartFrom
from dledger.state.offsets import CommitOffset, DoneRange
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, ReleaseQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import DEAD_NOW, FailedRecord, FailRecords
from dledger.state.queues.trim import Trim
from dledger.state.results import QueuesClaimed
from dledger.state.timers.commands import FireTimers
from dledger.types import EntryKind
from dledger_broker.read.explain import story_at
from dledger_broker.read.story import Line, Moment, decode_cursor, encode_cursor
from dledger_proto.errors import Code
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS, SETTINGS, with_group
from tests.unit.state.kit import TOPIC, Driven, batch

CONCURRENT = replace(
    SETTINGS, start=StartFrom.FIRST, retries_max=2, retry_delays_ms=(100,), pause_failures=0
)
ORDERED = replace(CONCURRENT, order=ConsumeOrder.QUEUE)


def tell(driven: Driven, offset: int, topic: bytes = TOPIC) -> list[Line]:
    """Return the story of a record, read from the driven log."""
    queries = driven.machine.queries
    story = story_at(queries, topic, 0, offset)
    first = min(story.places, key=lambda place: place.opened_by)
    entries = [
        entry
        for entry in driven.log.entries
        if entry.ref.position + entry.ref.size > first.opened_by
    ]
    first.opened_by = entries[0].ref.position
    lines: list[Line] = []
    for entry in entries:
        now = Moment(entry.ref.index, entry.time_ms, entry.ref.position)
        lines += story.take(queries, now, None)
        if entry.kind is EntryKind.COMMANDS:
            for payload in entry.payloads:
                lines += story.take(queries, now, decode(payload))
        _, story = decode_cursor(encode_cursor(0, story))
    return lines


def events(lines: Sequence[Line]) -> list[str]:
    return [line.event for line in lines]


def claim(epoch: int = 5, member: str = "a", topic: bytes = TOPIC) -> ClaimQueues:
    return ClaimQueues("billing", member, (WantedQueue(topic, 0, epoch),))


def commit(
    offset: int, epoch: int = 5, member: str = "a", *done: tuple[int, int], resets: int = 0,
    reset: bool = False, topic: bytes = TOPIC,
) -> CommitOffsets:  # fmt: skip
    ranges = tuple(DoneRange(*each) for each in done)
    item = CommitOffset(topic, 0, offset, "", epoch, resets, ranges)
    return CommitOffsets("billing", (item,), reset, member)


def fail(
    offset: int, attempts: int = 0, epoch: int = 5, member: str = "a", *, delay_ms: int = -1,
    topic: bytes = TOPIC, resets: int = 0,
) -> FailRecords:  # fmt: skip
    record = FailedRecord(topic, 0, epoch, resets, offset, attempts, delay_ms, "bad")
    return FailRecords("billing", member, (record,))


def test_claimed_and_done() -> None:
    driven = with_group(CONCURRENT)
    driven.append(batch(3), time_ms=2_000)
    for command in (claim(), claim(), commit(1), commit(1, 5, "a", (2, 3)), claim(6, "b")):
        driven.one(command)
    stored, claimed, done = tell(driven, 0)
    assert (stored.event, stored.time_ms, stored.text) == (
        "stored", 2_000, "stored in a batch of 3 records",
    )  # fmt: skip
    assert (claimed.event, claimed.group, claimed.member, claimed.epoch) == (
        "claimed", "billing", "a", 5,
    )  # fmt: skip
    assert (done.event, done.member, done.text) == ("done", "a", "done by a commit of offset 1")
    assert [stored.entry, claimed.entry, done.entry] == [
        stored.entry, stored.entry + 1, stored.entry + 3,
    ]  # fmt: skip
    assert events(tell(driven, 1)) == ["stored", "claimed", "claimed"]
    assert tell(driven, 2)[-1].text == "done by a commit of offset 1, in a range above it"


def test_a_claim_older_than_the_record_is_learnt_from_a_commit() -> None:
    driven = with_group(CONCURRENT)
    driven.one(claim())
    driven.append(batch())
    driven.one(commit(1))
    assert [(line.event, line.member, line.epoch) for line in tell(driven, 0)] == [
        ("stored", "", 0), ("done", "a", 5),
    ]  # fmt: skip


def test_a_stale_owner_is_refused() -> None:
    driven = with_group(CONCURRENT)
    driven.append(batch())
    for command in (claim(), claim(6, "b"), commit(1), commit(1, 6, "b")):
        driven.one(command)
    lines = tell(driven, 0)
    assert events(lines) == ["stored", "claimed", "claimed", "refused", "done"]
    assert "FENCED" in lines[3].text


def test_a_retry_is_followed_to_its_end() -> None:
    driven = with_group(CONCURRENT)
    driven.append(batch(2))
    driven.run(claim(), fail(0))
    driven.one(FireTimers(1 << 40, 10), time_ms=driven.log.time_ms + 100)
    driven.run(claim(7, topic=BILLING), commit(1, 7, topic=BILLING))
    lines = tell(driven, 0)
    assert events(lines) == ["stored", "claimed", "failed", "retry", "claimed", "done"]
    assert lines[2].text == "failure 1: bad; it is due again in 100 ms"
    assert [line.topic_id for line in lines[3:]] == [BILLING] * 3
    assert lines[3].entry == lines[2].entry + 1
    assert events(tell(driven, 0, BILLING)) == ["referred", "claimed", "done"]


@pytest.mark.parametrize("resend", [True, False])
def test_a_dead_letter_is_settled(resend: bool) -> None:
    driven = with_group(CONCURRENT)
    driven.append(batch(2))
    driven.run(claim(), fail(0, delay_ms=DEAD_NOW), fail(1, delay_ms=DEAD_NOW))
    lines = tell(driven, 1)
    assert events(lines) == ["stored", "claimed", "dead", "dead letter"]
    assert (lines[-1].topic_id, lines[-1].offset) == (DEAD_LETTERS, 1)
    driven.one(SettleDeadLetters("billing", 0, (1,), resend, 3), time_ms=5_000)
    assert tell(driven, 1)[-1].event == ("resent" if resend else "dropped")
    if resend:  # also when the dead letter is trimmed
        driven.one(SettleDeadLetters("billing", 0, (0,), resend, 3))
        assert events(tell(driven, 1)) == ["stored", "claimed", "dead", "resent"]


def test_an_ordered_group_suspends_and_gives_up() -> None:
    driven = with_group(ORDERED)
    driven.append(batch())
    driven.run(claim(), fail(0), fail(0, 1), fail(0, 2))
    lines = tell(driven, 0)
    assert events(lines) == ["stored", "claimed", "failed", "failed", "dead", "dead letter"]
    assert "lease of 30000 ms" in lines[1].text


def test_resets_and_trims() -> None:
    driven = with_group(CONCURRENT)
    driven.append(batch(3))
    for command in (commit(2, 0, "", reset=True), commit(0, 0, "", reset=True), Trim(TOPIC, 0, 1)):
        driven.one(command)
    assert events(tell(driven, 1)) == ["stored", "skipped", "reset"]


def test_who_does_not_know_of_a_reset_is_refused() -> None:
    driven = with_group(CONCURRENT)
    driven.one(commit(0, 0, "", reset=True))
    driven.append(batch())
    driven.run(claim(), commit(0, 0, "", reset=True))
    driven.run(commit(1, resets=1), claim(), commit(1, resets=2))
    lines = tell(driven, 0)
    assert events(lines) == ["stored", "claimed", "refused", "claimed", "done"]
    assert "OFFSET_RESET" in lines[2].text


def test_a_cursor_that_is_none_is_refused() -> None:
    nonsense = (b"", b"[]", b"[1]", b"[1, 2]", b'[1, {"places": [{}], "claims": {}}]', b"\xff")
    for cursor in (*nonsense, b"[" * 60_000):
        with pytest.raises(ValueError, match=r"."):
            decode_cursor(cursor)
    driven = with_group(CONCURRENT)
    driven.append(batch())
    good = encode_cursor(7, story_at(driven.machine.queries, TOPIC, 0, 0))
    assert decode_cursor(good)[0] == 7
    for old, new in ((b'"queue": 0', b'"queue": "0"'), (b"[7", b'["7"'), (b"5454", b"zz")):
        assert old in good
        with pytest.raises(ValueError, match=r"."):
            decode_cursor(good.replace(old, new))


ENDS = ("done", "skipped", "reset", "failed", "dead")
MEMBERS = st.sampled_from(["a", "b"])
EPOCHS = st.integers(1, 3)
OFFSETS = st.integers(0, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("claim"), EPOCHS, MEMBERS),
    st.tuples(st.just("commit"), EPOCHS, MEMBERS, OFFSETS, OFFSETS),
    st.tuples(st.just("fail"), EPOCHS, MEMBERS, st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("release"), EPOCHS, MEMBERS),
    st.tuples(st.just("reset"), st.just(0), st.just(""), OFFSETS),
    st.tuples(st.just("anonymous"), st.just(0), st.just(""), OFFSETS),
)


def consume(driven: Driven, actions: Sequence[tuple[Any, ...]]) -> None:
    """Do what consumers do: each commits only what it claimed, with the resets that it was told."""
    told: dict[tuple[int, str], int] = {}
    for what, epoch, member, *offsets in actions:
        who = epoch, member
        if what == "claim":
            result = driven.one(claim(epoch, member))
            assert isinstance(result, QueuesClaimed)
            (row,) = result.rows
            if row.code is Code.OK and row.row is not None:
                told[who] = row.row.resets
        elif what == "reset":
            driven.one(commit(offsets[0], 0, "", reset=True))
        elif what == "anonymous":
            driven.one(commit(offsets[0], 0, ""))
        elif who in told and what == "commit":
            first, end = offsets
            ranges = [(first, end)] if first < end else []
            driven.one(commit(first, epoch, member, *ranges, resets=told[who]))
        elif who in told and what == "fail":
            driven.one(fail(offsets[0], offsets[1], epoch, member, resets=told[who]))
        elif what == "release":
            driven.one(ReleaseQueues("billing", member, (GrantedQueue(TOPIC, 0, epoch),)))


@given(st.lists(ACTIONS, max_size=25), st.booleans())
@settings(deadline=None)
def test_the_story_agrees_with_the_state(actions: list[tuple[Any, ...]], ordered: bool) -> None:
    driven = with_group(ORDERED if ordered else CONCURRENT)
    driven.append(batch(3))
    consume(driven, [("claim", 1, "a"), ("commit", 1, "a", 0, 0), *actions])
    row = driven.machine.queries.progress("billing", TOPIC, 0).row
    assert row is not None
    for offset in range(3):
        is_done = False
        lines = tell(driven, offset)
        for line in lines:
            if line.topic_id == TOPIC and line.event in ENDS:
                is_done = not ordered if line.event == "failed" else line.event != "reset"
        assert is_done == row.is_done(offset), lines
