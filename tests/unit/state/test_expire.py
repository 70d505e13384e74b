"""What the retention of a topic lets go, whatever a leader asks for."""

from dataclasses import replace

import pytest

from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.failures import DEAD_NOW
from dledger.state.queues.expire import DONE_KEPT_MS, Bound, ExpireRecords, Expiring, effective
from dledger.state.queues.holds import Hold
from dledger.state.results import RecordsExpired, Trimmed
from dledger.state.topics.commands import DeleteTopic, UpdateTopic
from dledger.state.values import AS_THE_CLUSTER, Retention
from dledger_proto.errors import Code
from dledger_proto.limits import RETENTION_FOREVER, TIME_MS_MAX
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, code_of, started
from tests.unit.state.test_failures import fail, fire, ready

HOUR = 3_600_000
FOREVER = Retention(RETENTION_FOREVER, RETENTION_FOREVER)


def expire(
    offset: int, why: Bound = Bound.TIME, *, default: Retention = FOREVER, size: int = 0
) -> ExpireRecords:
    """Return a command for queue 0."""
    return ExpireRecords((Expiring(TOPIC, 0, offset, why, size),), default)


def minimum(driven: Driven) -> int:
    """Return where queue 0 begins."""
    return driven.machine.queries.queue_bounds(TOPIC, 0)[0]


def with_hours(*hours: int) -> Driven:
    """Return a topic that keeps its messages for two hours, with two records of each hour."""
    driven = started()
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(2 * HOUR,)))
    for hour in hours:
        driven.append(batch(2), time_ms=hour * HOUR)
    return driven


def test_records_go_when_they_are_older_than_the_retention() -> None:
    driven = with_hours(1, 2, 3)
    for time_ms, least in ((3 * HOUR, 0), (3 * HOUR + 1, 2), (4 * HOUR, 2), (9 * HOUR, 6)):
        assert driven.one(expire(6), time_ms=time_ms) == RecordsExpired((Trimmed(least),))
        assert minimum(driven) == least


def test_a_leader_that_names_less_gets_less() -> None:
    driven = with_hours(1, 2)
    assert driven.one(expire(1), time_ms=9 * HOUR) == RecordsExpired((Trimmed(1),))
    assert driven.one(expire(0), time_ms=9 * HOUR) == RecordsExpired((Trimmed(1),)), "never back"


def test_a_topic_that_says_nothing_follows_the_cluster() -> None:
    driven = started()
    driven.append(batch(2), time_ms=HOUR)
    assert driven.one(expire(2), time_ms=9 * HOUR) == RecordsExpired((Trimmed(0),))
    hour = expire(2, default=Retention(HOUR))
    assert driven.one(hour, time_ms=9 * HOUR) == RecordsExpired((Trimmed(2),))


def test_a_topic_that_keeps_all_keeps_all() -> None:
    driven = started()
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_FOREVER,)))
    driven.one(UpdateTopic(TOPIC, retention_size=(RETENTION_FOREVER,)))
    driven.append(batch(2), time_ms=HOUR)
    for why in Bound:
        for size in (0, 1, RETENTION_FOREVER):
            command = expire(2, why, default=Retention(1, 1), size=size)
            driven.one(command, time_ms=9 * HOUR)
    assert minimum(driven) == 0


def test_a_bound_of_size_is_needed_for_that_reason() -> None:
    driven = with_hours(1)
    assert driven.one(expire(2, Bound.SIZE)) == RecordsExpired((Trimmed(0),))
    driven.one(UpdateTopic(TOPIC, retention_size=(2,)))
    old = driven.one(expire(2, Bound.SIZE, size=1))
    assert old == RecordsExpired((Trimmed(0),)), "counted by a bound that has changed since"
    assert driven.one(expire(2, Bound.SIZE, size=2)) == RecordsExpired((Trimmed(2),))


def test_a_hold_keeps_what_is_expired() -> None:
    driven = with_hours(1, 2)
    driven.one(Hold("export", TOPIC, 0, 3, 20 * HOUR))
    assert driven.one(expire(4), time_ms=9 * HOUR) == RecordsExpired(
        (Trimmed(3, "export", 20 * HOUR),)
    )
    assert driven.one(expire(4), time_ms=9 * HOUR) == RecordsExpired((Trimmed(3),))
    assert driven.one(expire(4), time_ms=20 * HOUR) == RecordsExpired((Trimmed(4),))


def test_queues_that_are_gone_are_left_out() -> None:
    driven = with_hours(1)
    gone = ExpireRecords(
        (
            Expiring(OTHER_TOPIC, 0, 5, Bound.TIME),
            Expiring(TOPIC, 77, 5, Bound.TIME),
            Expiring(TOPIC, 0, 99, Bound.TIME),
        ),
        FOREVER,
    )
    assert driven.one(gone, time_ms=9 * HOUR) == RecordsExpired(
        (Trimmed(0), Trimmed(0), Trimmed(2))
    )
    driven.one(DeleteTopic(TOPIC))
    assert driven.one(gone, time_ms=9 * HOUR) == RecordsExpired(
        (Trimmed(0), Trimmed(0), Trimmed(0))
    )


def test_only_retries_are_done() -> None:
    driven = with_hours(1)
    done = expire(2, Bound.DONE)
    assert driven.one(done, time_ms=HOUR + DONE_KEPT_MS + 1) == RecordsExpired((Trimmed(0),))


def test_a_retry_that_is_not_done_stays() -> None:
    driven = ready()
    fail(driven, 0)
    fire(driven, HOUR)
    done = ExpireRecords((Expiring(BILLING, 0, 1, Bound.DONE),), FOREVER)
    late = HOUR + 2 * DONE_KEPT_MS
    assert driven.one(done, time_ms=late) == RecordsExpired((Trimmed(0),))
    driven.one(CommitOffsets("billing", (CommitOffset(BILLING, 0, 1, epoch=5),), member_id="a"))
    assert driven.one(done, time_ms=late) == RecordsExpired((Trimmed(1),))


def test_retries_and_dead_letters_keep_to_no_bound() -> None:
    driven = ready()
    fail(driven, 0)
    fail(driven, 1, delay_ms=DEAD_NOW)
    fire(driven, HOUR)
    for topic in (BILLING, DEAD_LETTERS):
        for why in (Bound.TIME, Bound.SIZE, Bound.DISK):
            command = ExpireRecords((Expiring(topic, 0, 1, why, 1),), Retention(1, 1))
            assert driven.one(command, time_ms=9 * HOUR) == RecordsExpired((Trimmed(0),))


def test_the_retention_is_a_part_of_the_topic() -> None:
    driven = started()
    assert driven.machine.queries.topic_by_id(TOPIC).retention == AS_THE_CLUSTER  # type: ignore[union-attr]
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(5,)))
    driven.one(UpdateTopic(TOPIC, retention_size=(7,)))
    topic = driven.machine.queries.topic_by_id(TOPIC)
    assert topic is not None
    assert topic.retention == Retention(5, 7)
    assert topic.layout_version == 1, "the layout is the same"
    too_long = UpdateTopic(TOPIC, retention_time_ms=(TIME_MS_MAX + 1,))
    assert code_of(driven.one(too_long)) is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("topic", "default", "counts"),
    [
        (AS_THE_CLUSTER, AS_THE_CLUSTER, FOREVER),
        (AS_THE_CLUSTER, Retention(3, 4), Retention(3, 4)),
        (Retention(1, 0), Retention(3, 4), Retention(1, 4)),
        (FOREVER, Retention(3, 4), FOREVER),
    ],
)
def test_what_counts(topic: Retention, default: Retention, counts: Retention) -> None:
    driven = started()
    found = driven.machine.queries.topic_by_id(TOPIC)
    assert found is not None
    assert effective(replace(found, retention=topic), default) == counts
