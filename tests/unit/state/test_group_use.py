"""When a consumer group was last used in a broker group, and when it is unused there for certain.

Method: commands on one machine. Counted time passes by the leader's command alone, as in a member.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dledger.state.commands.command import Command
from dledger.state.consumers.groups import (
    CreateConsumerGroup,
    UpdateConsumerGroup,
    WidenConsumerGroup,
)
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings, StartFrom
from dledger.state.consumers.usage import USE_STEP_MS, Use, decode_use
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.machine import StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, ReleaseQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import DEAD_NOW, FailedRecord, FailRecords
from dledger.state.progress.start import BeginQueues, NewQueue
from dledger.state.results import FailuresStored, OffsetsCommitted, Refused
from dledger.state.tables import PREFIX, Table
from dledger.state.timers.commands import FireTimers
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import LayoutPart
from dledger_offline.state import describe_row
from dledger_proto.errors import Code
from tests.unit.state.consumer_kit import Billing, join
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS, SETTINGS, of_group, with_group
from tests.unit.state.kit import GROUP, TOPIC, Driven, batch, delayed, started

HOUR = 3_600_000
FIRST = replace(SETTINGS, start=StartFrom.FIRST, retries_max=1, retry_delays_ms=(100,))
ROW = PREFIX[Table.GROUP_USE] + BILLING


def claim(topic: bytes = TOPIC, epoch: int = 5) -> ClaimQueues:
    return ClaimQueues("billing", "a", (WantedQueue(topic, 0, epoch),))


def commit(
    offset: int, topic: bytes = TOPIC, epoch: int = 5, *, reset: bool = False
) -> Command[object]:
    item = CommitOffset(topic, 0, offset, "", epoch)
    return CommitOffsets("billing", (item,), reset, "a" if epoch else "")


def fail(offset: int, delay_ms: int = -1, attempts: int = 0) -> FailRecords:
    record = FailedRecord(TOPIC, 0, 5, 0, offset, attempts, delay_ms, "bad")
    return FailRecords("billing", "a", (record,))


def use_of(driven: Driven) -> Use | None:
    value = driven.rows().get(ROW)
    return None if value is None else decode_use(value)


def is_unused(driven: Driven, unused_ms: int = HOUR, now_ms: int | None = None) -> bool:
    now_ms = driven.log.time_ms if now_ms is None else now_ms
    return driven.machine.queries.is_unused(BILLING, unused_ms, now_ms)


def pass_time(driven: Driven, unused_ms: int = HOUR) -> None:
    """Let so much time pass that whatever was used before is certainly unused for so long."""
    driven.count_time(unused_ms + USE_STEP_MS + COUNTED_AT_ONCE_MAX_MS)


def ready(settings: GroupSettings = FIRST) -> Driven:
    driven = with_group(settings)
    driven.append(batch(10))
    for each in (claim(), claim(BILLING), commit(0)):
        driven.one(each)
    return driven


def reset() -> Command[object]:
    return commit(2, epoch=0, reset=True)


def settle() -> SettleDeadLetters:
    return SettleDeadLetters("billing", 0, (0,), resend=False, resent_max=0)


USES: dict[str, Callable[[], Command[object]]] = {
    "claim": lambda: claim(epoch=6),
    "renewal": claim,
    "commit": lambda: commit(3),
    "commit without progress": lambda: commit(0),
    "failure": lambda: fail(4),
    "last failure": lambda: fail(4, DEAD_NOW),
    "reset": reset,
    "release": lambda: ReleaseQueues("billing", "a", (GrantedQueue(TOPIC, 0, 5),)),
    "first floor": lambda: BeginQueues("billing", (NewQueue(TOPIC, 3, 1),)),
    "a changed setting": lambda: ImportTopic(
        of_group(BILLING, "%RETRY%billing", 99, replace(FIRST, paused=True))
    ),
}


@pytest.mark.parametrize("use", list(USES))
def test_whatever_a_group_does_is_a_use(use: str) -> None:
    driven = ready()
    pass_time(driven)
    assert is_unused(driven)
    driven.one(USES[use]())
    assert use_of(driven) == Use(driven.machine._state.time.ms // USE_STEP_MS, _retry(driven))
    assert not is_unused(driven)


def test_a_consumer_without_a_session_uses_the_group_by_its_commits() -> None:
    driven = ready()
    for offset in range(1, 4):
        pass_time(driven)
        assert is_unused(driven)
        assert driven.one(commit(offset)) == OffsetsCommitted((Code.OK,), (offset,))
        assert not is_unused(driven)
    pass_time(driven)
    assert is_unused(driven)


def _retry(driven: Driven) -> int:
    use = use_of(driven)
    return 0 if use is None else use.retry_ms


def test_settling_a_dead_letter_is_a_use() -> None:
    driven = ready()
    driven.one(fail(4, DEAD_NOW))
    pass_time(driven)
    assert not driven.machine.queries.is_unused(BILLING, HOUR, 0), "a dead letter waits"
    driven.one(settle())
    assert not is_unused(driven)
    pass_time(driven)
    assert is_unused(driven)


def test_a_busy_group_writes_a_row_once_in_a_step() -> None:
    """The row is written at the first use of a step, and not again in this step."""
    driven = ready()
    writes: list[bytes] = []
    put = driven.machine._state.writer.store.put

    def counted(key: bytes, value: bytes) -> None:
        writes.append(key)
        put(key, value)

    driven.machine._state.writer.store.put = counted  # type: ignore[method-assign]
    for step in range(3):
        for offset in range(3):
            driven.one(claim())
            driven.one(commit(3 * step + offset))
        driven.count_time(USE_STEP_MS)
    assert writes.count(ROW) == 2, "the first step had its row before"


def test_no_group_is_called_unused_early() -> None:
    """Of N ms, a step is what a use may be noted too early, and a count may be of before it."""
    driven = ready()
    driven.count_time(USE_STEP_MS - 1)
    driven.one(commit(1))
    assert use_of(driven) == Use(0), "at the very end of the step"
    driven.count_time(HOUR + COUNTED_AT_ONCE_MAX_MS)
    assert not is_unused(driven)
    assert BILLING not in driven.machine.queries.silent_groups(HOUR)
    driven.count_time(1)
    assert is_unused(driven)
    assert driven.machine.queries.silent_groups(HOUR) == [BILLING]
    assert not is_unused(driven, HOUR + 1)


def test_wall_clocks_and_stamps_count_for_nothing() -> None:
    driven = ready()
    driven.idle()
    driven.one(ExpireProducers(0, HOUR), 10**12)
    assert not is_unused(driven)
    assert driven.machine.queries.silent_groups(0) == []


def test_a_group_without_a_row_counts_as_used() -> None:
    """As an older dledger left it. The next use writes the row."""
    driven = ready()
    driven.store.delete(ROW)
    driven.machine = StateMachine(driven.store, GROUP)
    pass_time(driven, 100 * HOUR)
    assert not is_unused(driven)
    assert driven.machine.queries.silent_groups(HOUR) == []
    driven.one(commit(1))
    pass_time(driven)
    assert is_unused(driven)


def test_a_group_that_is_not_known_is_not_unused() -> None:
    driven = started()
    pass_time(driven)
    assert not is_unused(driven)
    assert not driven.machine.queries.is_unused(TOPIC, HOUR, 0), "a plain topic"


def test_refusals_are_no_use() -> None:
    """A consumer that was fenced long ago keeps nothing."""
    driven = ready()
    driven.one(claim(epoch=9))
    pass_time(driven)
    for late in (claim(epoch=5), commit(3), fail(4)):
        driven.one(late)
    assert is_unused(driven)


def test_joined_consumers_use_the_group_at_its_coordinator() -> None:
    """Also when they get nothing for long; the time begins when the last session ends."""
    billing = Billing(GroupSettings(GROUP, DEAD_LETTERS))
    driven = billing.driven
    driven.one(ImportTopic(of_group(DEAD_LETTERS, "%DLQ%billing", 4), b"c" * 16))
    pass_time(driven)
    assert is_unused(driven)
    billing.join("c1")
    billing.join("c2")
    pass_time(driven, 10 * HOUR)
    assert driven.machine.queries.silent_groups(HOUR) == [BILLING], "the join was long ago"
    assert not is_unused(driven)
    billing.end("c1")
    pass_time(driven, 10 * HOUR)
    assert not is_unused(driven)
    billing.end("c2")
    assert not is_unused(driven)
    pass_time(driven)
    assert is_unused(driven)


def test_a_refused_join_is_no_use() -> None:
    billing = Billing(GroupSettings(GROUP, DEAD_LETTERS))
    billing.driven.one(ImportTopic(of_group(DEAD_LETTERS, "%DLQ%billing", 4), b"c" * 16))
    pass_time(billing.driven)
    refused = billing.one(join("c1", order=ConsumeOrder.KEY))
    assert isinstance(refused, Refused)
    assert is_unused(billing.driven)


def test_a_retry_that_is_to_come_keeps_the_group() -> None:
    """From the failure on, until the retry is done; its timer may be due after the expiry."""
    driven = ready()
    driven.one(fail(4, 5 * HOUR), 1_000)
    pass_time(driven)
    assert BILLING in driven.machine.queries.silent_groups(HOUR)
    assert not is_unused(driven), "the timer waits"
    assert not is_unused(driven, now_ms=9 * HOUR), "it was not fired although it is due"
    driven.one(FireTimers(6 * HOUR, 10), 6 * HOUR)
    assert not is_unused(driven), "the retry is in its queue"
    driven.one(commit(1, BILLING))
    pass_time(driven)
    assert is_unused(driven)


def test_the_timers_of_others_keep_no_group() -> None:
    driven = ready()
    driven.one(fail(4, 1_000), 1_000)
    driven.one(FireTimers(2_000, 10), 2_000)
    driven.one(commit(1, BILLING))
    driven.append(delayed(9 * HOUR))
    assert driven.machine.queries.timers_waiting == 1
    pass_time(driven)
    assert is_unused(driven, now_ms=HOUR)


def test_a_suspended_record_keeps_an_ordered_group_until_its_time() -> None:
    driven = ready(replace(FIRST, order=ConsumeOrder.QUEUE))
    stored = driven.one(fail(0, 5 * HOUR), 1_000)
    assert isinstance(stored, FailuresStored)
    assert stored.rows[0].due_ms == 5 * HOUR + 1_000
    pass_time(driven)
    assert not is_unused(driven, now_ms=4 * HOUR)
    assert is_unused(driven, now_ms=6 * HOUR), "the record is a backlog then, as any other"


def test_retries_are_noted_rarely() -> None:
    """Each failure has a later retry; the noted time is rounded up."""
    driven = ready()
    driven.one(fail(4, 1_000), 1_000)
    first = use_of(driven)
    driven.one(fail(5, 1_000), 2_000)
    assert use_of(driven) == first == Use(0, USE_STEP_MS)
    driven.one(fail(6, USE_STEP_MS), 3_000)
    assert use_of(driven) == Use(0, 2 * USE_STEP_MS)
    driven.one(fail(7, 1_000), 4_000)
    assert use_of(driven) == Use(0, 2 * USE_STEP_MS), "it never goes back"


def test_a_group_that_is_known_in_part_is_used() -> None:
    """The topic of its dead letters is not taken over yet."""
    driven = started()
    driven.one(ImportTopic(of_group(BILLING, "%RETRY%billing", 9, SETTINGS), b"c" * 16))
    pass_time(driven)
    assert not is_unused(driven)


def test_creation_and_widening_are_uses_where_they_are_decided() -> None:
    driven = Driven()
    layout = (LayoutPart(GROUP, 1),)
    create = CreateConsumerGroup(BILLING, "billing", layout, SETTINGS)
    changes = (
        create,
        UpdateConsumerGroup(BILLING, ("paused",), replace(SETTINGS, paused=True)),
        WidenConsumerGroup(BILLING, (*layout, LayoutPart("g2", 1))),
    )
    for change in changes:
        driven.one(change)
        assert not is_unused(driven)
        pass_time(driven)
        assert is_unused(driven)
    driven.one(replace(create, settings=replace(SETTINGS, paused=True)))
    assert is_unused(driven), "it was there, so the repeat stored nothing"


def test_the_row_goes_with_the_group() -> None:
    driven = ready()
    assert use_of(driven) is not None
    gone = replace(of_group(BILLING, "%RETRY%billing", 99, FIRST), deleted=True)
    driven.one(ImportTopic(gone))
    assert use_of(driven) is None
    pass_time(driven)
    assert not is_unused(driven)
    assert driven.machine.queries.silent_groups(HOUR) == []


def test_a_restart_finds_the_uses() -> None:
    driven = ready()
    driven.count_time(2 * USE_STEP_MS)
    driven.one(commit(1))
    driven.one(fail(4, 1_000), 1_000)
    again = StateMachine(driven.store, GROUP)
    usage = again._state.usage
    assert usage.find(BILLING) == use_of(driven) == Use(2, USE_STEP_MS)


def test_the_row_is_shown_in_words() -> None:
    driven = ready()
    row = describe_row(Table.GROUP_USE, ROW, driven.rows()[ROW])
    assert (row.table, row.key, row.value) == (
        "group-use", BILLING.hex(), {"step": 0, "retry_ms": 0}
    )  # fmt: skip
