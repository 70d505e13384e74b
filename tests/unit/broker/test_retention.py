"""The duty that deletes expired messages: what it looks at, and what it asks for."""

import pytest

from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.expire import DONE_KEPT_MS, Bound, ExpireRecords, Expiring
from dledger.state.queues.holds import Hold
from dledger.state.queues.trim import Trim
from dledger.state.results import RecordsExpired, Trimmed
from dledger.state.topics.commands import DeleteTopic, UpdateTopic
from dledger.state.values import LayoutPart, Retention
from dledger_broker.group import retention
from dledger_broker.group.duty import EVERYTHING, Look
from dledger_broker.group.queue_sizes import CHUNK_BYTES_MIN, CHUNKS_PER_BOUND
from dledger_broker.group.retention import LOOK_SECONDS, RetentionDuty
from dledger_proto.limits import RETENTION_FOREVER
from tests.unit.state.carry_kit import carry, end_of
from tests.unit.state.groups_kit import BILLING
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, create, delayed, started
from tests.unit.state.test_failures import fail, fire, ready

HOUR = 3_600_000
DEFAULT = Retention(2 * HOUR, RETENTION_FOREVER)


class Leading:
    """A leader that looks whenever the test says so."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.duty = RetentionDuty(DEFAULT, delete_when_low=True)
        self.low_below: int | None = None
        self.term: int | None = 1
        self.now = 100.0

    def looks(self, time_ms: int | None, after: float = LOOK_SECONDS) -> ExpireRecords | None:
        self.now += after
        queries = self.driven.machine.queries
        look = Look(self.term, EVERYTHING, queries, self.now, time_ms, self.low_below)
        return self.duty.due(look)

    def does_its_duty(self, time_ms: int) -> int:
        """Look once, and propose what is due; return how many queues got a higher minimum."""
        command, count = self.looks(time_ms), 0
        while command is not None:
            result = self.driven.one(command, time_ms=time_ms)
            assert isinstance(result, RecordsExpired), result
            count += self.duty.count(result)
            command = self.duty.rest(result)
        return count


def bounds(driven: Driven, queue: int = 0) -> tuple[int, int]:
    """Return the bounds of a queue."""
    return driven.machine.queries.queue_bounds(TOPIC, queue)


@pytest.fixture
def leading() -> Leading:
    """Return a leader with one topic, two records an hour in each of two queues."""
    driven = started()
    for hour in (1, 2, 3):
        driven.append(batch(2), batch(2, queue=1), time_ms=hour * HOUR)
    return Leading(driven)


def test_expired_records_of_all_queues_go_at_once(leading: Leading) -> None:
    assert leading.looks(3 * HOUR) is None, "nothing is older than two hours"
    assert leading.looks(4 * HOUR) == ExpireRecords(
        (Expiring(TOPIC, 0, 2, Bound.TIME), Expiring(TOPIC, 1, 2, Bound.TIME)), DEFAULT
    )
    assert leading.does_its_duty(9 * HOUR) == 2
    assert bounds(leading.driven) == bounds(leading.driven, 1) == (6, 6)
    assert leading.looks(20 * HOUR) is None


def test_only_a_leader_that_knows_the_time_asks(leading: Leading) -> None:
    assert leading.looks(None) is None
    leading.term = None
    assert leading.looks(9 * HOUR) is None
    leading.term = 2
    assert leading.looks(9 * HOUR)
    assert leading.looks(9 * HOUR, after=LOOK_SECONDS / 2) is None, "not so soon again"


def test_a_topic_may_keep_its_messages_longer_or_shorter(leading: Leading) -> None:
    leading.driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_FOREVER,)))
    assert leading.looks(99 * HOUR) is None
    leading.driven.one(UpdateTopic(TOPIC, retention_time_ms=(HOUR,)))
    assert leading.does_its_duty(3 * HOUR + 1) == 2
    assert bounds(leading.driven) == (4, 6)


def test_a_look_goes_on_where_the_one_before_ended(
    leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "QUEUES_PER_LOOK", 1)
    assert [leading.does_its_duty(9 * HOUR) for _ in range(4)] == [1, 1, 0, 0]


def test_one_command_names_some_queues_and_the_rest_follows(
    leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EXPIRED_QUEUES_MAX", 1)
    command = leading.looks(9 * HOUR)
    assert command is not None
    assert len(command.queues) == 1
    assert leading.does_its_duty(9 * HOUR) == 2


def test_queues_of_other_groups_and_of_deleted_topics_are_not_asked_for(leading: Leading) -> None:
    other = create(OTHER_TOPIC, "theirs", (LayoutPart("g2", 3),))
    leading.driven.one(other)
    leading.driven.one(DeleteTopic(TOPIC))
    assert leading.looks(9 * HOUR) is None


def test_a_queue_is_cut_to_its_bound_of_size() -> None:
    driven = started()
    bound = 2 * CHUNK_BYTES_MIN * CHUNKS_PER_BOUND
    driven.one(UpdateTopic(TOPIC, retention_size=(bound,)))
    size = len(batch(body=b"x" * CHUNK_BYTES_MIN))
    leading = Leading(driven)
    for _ in range(3 * CHUNKS_PER_BOUND):
        driven.append(batch(body=b"x" * CHUNK_BYTES_MIN))
        leading.does_its_duty(HOUR)
        minimum, maximum = bounds(driven)
        kept = (maximum - minimum) * size
        assert kept >= min(bound, maximum * size), "never less than the bound"
        assert kept <= bound + bound // CHUNKS_PER_BOUND + 2 * size
    assert bounds(driven)[0] > 0


def test_sizes_are_counted_anew_after_a_trim_and_by_a_new_leader() -> None:
    driven = started()
    bound = 4 * CHUNK_BYTES_MIN
    driven.one(UpdateTopic(TOPIC, retention_size=(bound,)))
    leading = Leading(driven)
    for _ in range(8):
        driven.append(batch(body=b"x" * CHUNK_BYTES_MIN))
        leading.does_its_duty(HOUR)
    at = bounds(driven)
    assert at == (4, 8)
    leading.term = 2
    assert leading.does_its_duty(HOUR) == 0
    driven.one(Trim(TOPIC, 0, 8))
    assert leading.does_its_duty(HOUR) == 0
    for _ in range(5):
        driven.append(batch(body=b"x" * CHUNK_BYTES_MIN))
    assert leading.does_its_duty(HOUR) == 1
    assert bounds(driven) == (9, 13)


def test_a_low_disk_deletes_the_oldest_segment_earlier(leading: Leading) -> None:
    driven = leading.driven
    second = driven.log.entries[-2].ref.position
    assert leading.looks(3 * HOUR) is None
    leading.low_below = second
    command = leading.looks(3 * HOUR)
    assert command is not None
    assert set(command.queues) == {Expiring(TOPIC, number, 2, Bound.DISK) for number in (0, 1)}
    assert driven.one(command) == RecordsExpired((Trimmed(2), Trimmed(2)))
    assert leading.looks(3 * HOUR) is None, "nothing begins below any more"
    leading.low_below = driven.log.position
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_FOREVER,)))
    assert leading.looks(3 * HOUR) is None, "a topic that keeps everything keeps the segment"


def test_a_hold_keeps_the_segment_of_a_low_disk(leading: Leading) -> None:
    leading.driven.one(Hold("export", TOPIC, 1, 1, 9 * HOUR))
    leading.low_below = leading.driven.log.entries[-2].ref.position
    assert leading.looks(3 * HOUR) is None


def test_a_queue_that_is_held_is_not_asked_for_again_and_again(leading: Leading) -> None:
    leading.driven.one(Hold("export", TOPIC, 1, 0, 20 * HOUR))
    assert leading.does_its_duty(9 * HOUR) == 1
    assert leading.looks(9 * HOUR) is None
    assert leading.does_its_duty(20 * HOUR) == 1


def test_a_low_disk_deletes_nothing_unless_the_cluster_says_so(leading: Leading) -> None:
    leading.duty = RetentionDuty(DEFAULT, delete_when_low=False)
    leading.low_below = leading.driven.log.position
    assert leading.looks(3 * HOUR) is None


def test_where_queues_reach_a_position_also_with_references() -> None:
    driven = ready()
    for offset in range(5):
        fail(driven, offset)
    fire(driven, HOUR)
    position = driven.log.position
    driven.append(batch(3))
    queries = driven.machine.queries
    found = {
        (topic, queue): offset for topic, queue, offset in queries.beginning_below(position, 9)
    }
    assert found == {(TOPIC, 0): 10, (BILLING, 0): 5}
    assert queries.beginning_below(position, 1) == [(TOPIC, 0, 10)]
    assert queries.beginning_below(0, 9) == []


def test_finished_retries_go_before_their_retention_ends() -> None:
    driven = ready()
    for offset in (0, 1, 2):
        fail(driven, offset)
    fire(driven, HOUR)
    driven.one(CommitOffsets("billing", (CommitOffset(BILLING, 0, 2, epoch=5),), member_id="a"))
    leading = Leading(driven)
    assert leading.looks(HOUR + DONE_KEPT_MS) is None
    command = leading.looks(HOUR + DONE_KEPT_MS + 1)
    assert command is not None
    assert command.queues == (Expiring(BILLING, 0, 2, Bound.DONE),)
    early = driven.one(command, time_ms=HOUR + DONE_KEPT_MS)
    assert early == RecordsExpired((Trimmed(0),)), "apply looks at the time itself"
    assert driven.one(command, time_ms=HOUR + DONE_KEPT_MS + 1) == RecordsExpired((Trimmed(2),))
    assert driven.machine.queries.queue_bounds(BILLING, 0) == (2, 3)


def test_groups_that_will_lose_messages_are_named_before_they_do() -> None:
    driven = ready()
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(20 * HOUR,)))
    driven.one(Trim(TOPIC, 0, bounds(driven)[1]))
    driven.append(batch(4), time_ms=30 * HOUR)
    leading = Leading(driven)
    maximum = bounds(driven)[1]

    def named(hours: float) -> list[tuple[object, ...]]:
        for _ in range(3):  # a round ends with the look behind its last queue
            leading.looks(int(hours * HOUR))
        return [tuple(each) for each in leading.duty.endangered]

    assert named(48.9) == []
    assert named(49.1) == [("orders", 0, ("billing",), maximum)]
    driven.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, maximum, "", 5),), member_id="a"))
    assert named(49.2) == []
    driven.append(batch(1))
    assert named(60) != []
    leading.term = None
    assert named(60) == []


def with_a_low_disk(driven: Driven) -> Leading:
    """Return a leader whose low disk would have room without what lies before the last entry."""
    carry(driven, end_of(driven))
    for hour in (7, 8, 9):
        driven.append(batch(2), batch(2, queue=1), time_ms=hour * HOUR)
    leading = Leading(driven)
    leading.low_below = int(driven.log.entries[-1].ref.position)
    return leading


def early(leading: Leading) -> list[tuple[bytes, int]]:
    """Return the queues of which a low disk asks to delete early."""
    command = leading.looks(9 * HOUR)
    return [] if command is None else [
        (each.topic_id, each.queue) for each in command.queues if each.why is Bound.DISK
    ]  # fmt: skip


def test_what_was_carried_forward_does_not_keep_a_low_disk_from_deleting() -> None:
    driven = started()
    driven.one(create(OTHER_TOPIC, "keeps", (LayoutPart("g1", 1),)))
    driven.one(UpdateTopic(OTHER_TOPIC, retention_time_ms=(RETENTION_FOREVER,)))
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(99 * HOUR,)))
    driven.append(delayed(39 * 24 * HOUR, queue=3))
    driven.append(batch(1, topic=OTHER_TOPIC))
    driven.append(batch(2, queue=2), time_ms=HOUR)
    driven.one(Trim(TOPIC, 0, 0))
    leading = with_a_low_disk(driven)
    assert early(leading) == [], "the copies lie in the segment"
    carry(driven, driven.log.entries[-3].ref.position)
    driven.idle(4)
    leading.low_below = int(driven.log.entries[-5].ref.position) - 1
    assert early(leading) == [(TOPIC, 0), (TOPIC, 1)], "queue 2 was carried, and stays"
