"""How far everybody is behind: the walk agrees with what one asks of each queue alone."""

from dataclasses import replace

import pytest

from dledger.state.consumers.groups import DeleteConsumerGroup
from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import DEAD_NOW
from dledger.state.progress.lag import Lag
from dledger.state.queues.trim import Trim
from dledger.state.topics.commands import DeleteTopic
from dledger_proto.errors import Code, DledgerError
from tests.unit.state.groups_kit import BILLING
from tests.unit.state.kit import TOPIC, Driven, batch, started
from tests.unit.state.test_failures import NOW, ORDERED, fail, ready


def commit(driven: Driven, name: str, offset: int, queue: int = 0) -> None:
    driven.one(CommitOffsets(name, (CommitOffset(TOPIC, queue, offset),), False, ""))


def all_lags(driven: Driven, limit: int = 100, now_ms: int = NOW) -> list[Lag]:
    found: list[Lag] = []
    place = b""
    while True:
        page, place = driven.machine.lags.page(place, limit, now_ms)
        found += page
        if not place:
            return found


def test_names_and_groups_and_what_waits_for_them() -> None:
    driven = ready(records=10)
    driven.append(batch(5, queue=1), time_ms=NOW + 70)
    commit(driven, "readers", 4)
    commit(driven, "readers", 5, queue=1)
    told = {(lag.name, lag.topic.name, lag.queue): lag for lag in all_lags(driven)}
    assert {key: lag.waiting for key, lag in told.items()} == {
        ("readers", "orders", 0): 6,
        ("readers", "orders", 1): 0,
        ("billing", "orders", 0): 10,
        ("billing", "%RETRY%billing", 0): 0,
    }
    assert told["readers", "orders", 0].oldest_ms == NOW
    assert told["readers", "orders", 1].oldest_ms == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_leave_nothing_out_and_repeat_nothing(limit: int) -> None:
    driven = ready()
    for number in range(4):
        commit(driven, f"name-{number}", number)
    assert all_lags(driven, limit) == all_lags(driven)


def test_the_walk_says_what_progress_says_of_each_queue() -> None:
    driven = ready()
    fail(driven, 0)
    driven.one(Trim(TOPIC, 0, 4))
    commit(driven, "readers", 2)
    for lag in all_lags(driven):
        row, minimum, maximum, oldest_ms, _, _ = driven.machine.queries.progress(
            lag.name, lag.topic.topic_id, lag.queue
        )
        assert row is not None
        assert lag.waiting == row.waiting(minimum, maximum)
        assert lag.lost == row.lost(minimum)
        assert lag.oldest_ms == oldest_ms


def test_what_was_deleted_before_it_was_read_is_lost() -> None:
    driven = ready()
    commit(driven, "readers", 2)
    driven.one(Trim(TOPIC, 0, 5))
    lost = {(lag.name, lag.topic.name): lag.lost for lag in all_lags(driven)}
    assert lost["readers", "orders"] == 3
    assert lost["billing", "orders"] == 5


def test_a_record_between_two_attempts_waits_and_is_not_ready() -> None:
    driven = ready(ORDERED)
    fail(driven, 0)
    by_name = {lag.topic.name: lag for lag in all_lags(driven, now_ms=NOW + 1)}
    assert (by_name["orders"].waiting, by_name["orders"].suspended) == (10, 1)
    later = {lag.topic.name: lag for lag in all_lags(driven, now_ms=NOW + 100)}
    assert later["orders"].suspended == 0


def test_deleted_topics_and_groups_have_no_lag() -> None:
    driven = ready()
    commit(driven, "readers", 1)
    driven.one(DeleteConsumerGroup(BILLING))
    assert {lag.name for lag in all_lags(driven)} == {"readers"}
    driven.one(DeleteTopic(TOPIC))
    assert all_lags(driven) == []


def test_dead_letters_ever_and_now() -> None:
    driven = ready(replace(ORDERED, retries_max=0))
    assert driven.machine.lags.dead_letters("billing") == (0, 0)
    for offset in range(3):
        assert fail(driven, offset, delay_ms=DEAD_NOW).is_dead
    assert driven.machine.lags.dead_letters("billing") == (3, 3)
    driven.one(SettleDeadLetters("billing", 0, (0,), resend=False, resent_max=0))
    assert driven.machine.lags.dead_letters("billing") == (3, 2)
    with pytest.raises(DledgerError) as refused:
        driven.machine.lags.dead_letters("nobody")
    assert refused.value.code is Code.CONSUMER_GROUP_NOT_FOUND


def test_an_empty_state_has_no_lag() -> None:
    assert all_lags(started()) == []
