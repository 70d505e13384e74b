"""The core of a group's consumer: grants, claims, commits, resets, leases, in virtual time."""

import pytest

from dledger_client._core.group import actions
from dledger_client._core.group.actions import Why
from dledger_client._core.group.failures import REST_SECONDS_MAX, Failure
from dledger_client._core.group.queues import QueueState
from dledger_client.errors import error_of
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2
from dledger_proto.v1 import delivery_pb2 as pb
from tests.unit.client.group_driver import GroupDriver


def test_a_queue_is_read_after_its_claim_and_from_its_floor() -> None:
    driver = GroupDriver()
    stream = driver.join()
    driver.assign(stream, (0, 5), (1, 6))
    assert not driver.all_of(actions.StartQueue), "nothing is read before it is claimed"
    (queues,) = [request.queues for _, request in [driver.asked(pb.ClaimQueuesRequest)[0]]]
    assert [(wanted.queue.queue, wanted.epoch) for wanted in queues] == [(0, 5), (1, 6)]
    driver.core.unanswered(1, driver.now)
    driver.wait(1.0)
    done = [broker_pb2.OffsetRange(first=9, end=12)]
    started = driver.claim(floor=7, done=done, resets=3)
    assert [held.describe() for held in started] == [
        "t/0 epoch=5 serving floor=7 resets=3", "t/1 epoch=6 serving floor=7 resets=3",
    ]  # fmt: skip
    assert started[0].progress.ranges() == [(9, 12)]


def test_a_revoked_queue_is_let_go_committed_released_and_only_then_given_back() -> None:
    driver = GroupDriver(commit_interval=1_000.0)
    stream, held = driver.serve((0, 5), (1, 6))
    queue = held["t", 0]
    queue.progress.done(0)
    driver.assign(stream, (0, 5), (1, 6), revoked=0)
    stop = driver.one(actions.StopQueue)
    assert (stop.held, stop.why) == (queue, Why.REVOKED)
    assert driver.commit() == [(0, 1, [])], "what is done is committed at once"
    queue.progress.done(1)
    driver.wait(5.0)
    assert driver.commit() == [(0, 2, [])]
    assert not driver.release(), "the listener has not let go"
    queue.progress.done(2)
    driver.core.let_go(queue, driver.now)
    assert not driver.release(), "the last commit is under way"
    assert not driver.given_back()
    assert driver.commit() == [(0, 3, [])]
    assert not driver.given_back()
    assert driver.release() == [0]
    assert driver.given_back() == [(0, 5)]
    assert [each.place for each in driver.core.queues()] == [("t", 1)]


def test_a_grant_that_comes_again_waits_for_the_end_of_the_claim_before() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    driver.assign(stream, (0, 5), revoked=0)
    driver.assign(stream, (0, 9))  # lost: the coordinator granted it anew
    assert held["t", 0].state is QueueState.GONE
    (again,) = driver.claim(floor=0)
    assert again.epoch == 9
    assert again is not held["t", 0]


def test_a_session_that_breaks_or_moves_keeps_what_is_held() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    driver.core.session_down(stream, error_of(Code.UNAVAILABLE, "broken"), driver.now)
    driver.wait(0.5)
    opened = driver.one(actions.OpenSession)
    assert opened.join.join.member_id == "m"
    driver.joined(opened.stream)
    driver.assign(opened.stream, (0, 5))
    assert held["t", 0].state is QueueState.SERVING
    assert not driver.asked(pb.ClaimQueuesRequest), "it is claimed already"
    driver.say(stream, pb.SessionReply(assignment=pb.Assignment()))  # late, of the old stream
    assert held["t", 0].state is QueueState.SERVING
    other = "a1" if opened.address == "a2:1" else "a2"
    driver.elect(other, 2)
    moved = driver.one(actions.OpenSession)
    assert moved.address == f"{other}:1"
    driver.joined(moved.stream)
    assert not driver.all_of(actions.StopQueue)


def test_signs_of_life_come_three_times_in_a_session() -> None:
    driver = GroupDriver()
    driver.join()
    driver.all_of(actions.TellSession)
    driver.wait(3.05)
    alive = [told.request.WhichOneof("what") for told in driver.all_of(actions.TellSession)]
    assert alive == ["alive"] * 3


def test_changes_of_the_group_do_not_put_off_signs_of_life() -> None:
    driver = GroupDriver()
    stream = driver.join()
    for _ in range(10):
        driver.wait(0.9)
        driver.joined(stream)  # told again, because a setting of the group has changed
    assert len(driver.all_of(actions.TellSession)) >= 8


def test_the_end_of_a_session_loses_all_queues_and_joins_again() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    held["t", 0].progress.done(0)
    driver.say(stream, pb.SessionReply(ended=pb.Ended(code=Code.SESSION_ENDED, detail="silent")))
    assert driver.one(actions.StopQueue).why is Why.LOST
    driver.wait(2.0)
    assert not driver.commit(), "nothing of a lost queue is committed"
    assert driver.one(actions.OpenSession).stream > stream
    for final in (Code.ORDER_CONFLICT, Code.FENCED):
        other = GroupDriver()
        stream = other.join()
        other.say(stream, pb.SessionReply(ended=pb.Ended(code=final, detail="told")))
        assert other.one(actions.Ended).error.code is final
        other.wait(60.0)
        assert not other.all_of(actions.OpenSession), "it does not ask again"


def test_a_group_that_was_just_created_may_not_be_known_yet() -> None:
    driver = GroupDriver()
    driver.core.begin("a", driver.now)
    stream = driver.one(actions.OpenSession).stream
    unknown = error_of(Code.CONSUMER_GROUP_NOT_FOUND, "g")
    driver.core.session_down(stream, unknown, driver.now)
    driver.wait(1.0)
    opened = driver.one(actions.OpenSession)
    driver.now += 20.0
    driver.core.session_down(opened.stream, unknown, driver.now)
    assert driver.one(actions.Ended).error.code is Code.CONSUMER_GROUP_NOT_FOUND


def test_commits_leave_every_so_often_one_at_a_time_with_their_ranges() -> None:
    driver = GroupDriver(commit_interval=1.0)
    _, held = driver.serve((0, 5))
    progress = held["t", 0].progress
    driver.wait(2.0)
    assert not driver.commit(), "nothing is done"
    for offset in (0, 1, 3, 4, 6):
        progress.done(offset)
    driver.wait(1.0)
    ((call, first),) = driver.asked(broker_pb2.CommitOffsetsRequest)
    assert [(each.first, each.end) for each in first.offsets[0].done] == [(3, 5), (6, 7)]
    progress.done(2)
    driver.wait(2.0)
    assert not driver.asked(broker_pb2.CommitOffsetsRequest), "one is under way"
    driver.core.unanswered(call, driver.now)
    driver.wait(2.0)
    assert driver.commit() == [(0, 5, [(6, 7)])]
    driver.wait(2.0)
    assert not driver.commit(), "it is committed"


def test_a_commit_by_hand_ends_when_all_of_it_is_stored_or_lost() -> None:
    driver = GroupDriver(commit_interval=0.0)
    _, held = driver.serve((0, 5), (1, 6))
    for queue in held.values():
        queue.progress.done(0)
    driver.wait(10.0)
    assert not driver.commit(), "only by hand"
    ticket = driver.core.commit(held.values(), driver.now)
    assert not driver.all_of(actions.CommitDone)
    driver.commit()
    assert driver.one(actions.CommitDone) == actions.CommitDone(ticket, None)
    driver.core.commit(held.values(), driver.now)
    assert driver.one(actions.CommitDone).error is None, "there is nothing to store"
    held["t", 0].progress.done(1)
    driver.core.commit(held.values(), driver.now)
    driver.commit(Code.FENCED)
    done = driver.one(actions.CommitDone)
    assert done.error is not None
    assert done.error.code is Code.FENCED
    assert held["t", 0].state is QueueState.GONE
    assert held["t", 1].state is QueueState.SERVING


def test_a_late_callback_of_a_lost_queue_changes_nothing() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    old = held["t", 0]
    driver.assign(stream)
    assert driver.one(actions.StopQueue).why is Why.LOST
    driver.assign(stream, (0, 8))
    (new,) = driver.claim(floor=3)
    old.progress.done(0, 50)
    driver.core.fail(Failure(old, 50, 0, "late"), driver.now)
    driver.core.let_go(old, driver.now)
    driver.wait(2.0)
    assert not driver.commit()
    assert not driver.asked(pb.FailRecordsRequest)
    assert new.progress.floor == 3
    assert new.state is QueueState.SERVING


def test_a_reset_drops_what_is_in_hand_and_claims_again() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    old = held["t", 0]
    old.progress.done(0, 10)
    driver.wait(1.0)
    driver.commit(Code.OFFSET_RESET)
    assert not driver.claim(floor=2, resets=1), "the answer tells of the reset"
    assert driver.one(actions.StopQueue).why is Why.RESET
    (again,) = driver.claim(floor=2, resets=1)
    assert (again.progress.floor, again.resets, again.epoch) == (2, 1, 5)
    old.progress.done(10)
    driver.wait(2.0)
    assert not driver.commit(), "nothing is committed over the reset"
    driver.say(stream, pb.SessionReply(nudge=pb.Nudge()))
    driver.claim(floor=2, resets=1)
    assert again.state is QueueState.SERVING, "the same number of resets changes nothing"


def test_an_idle_consumer_finds_a_reset_that_nobody_told_it_of() -> None:
    """It commits nothing, so only another claim tells it; the coordinator was out of reach."""
    driver = GroupDriver()
    _, held = driver.serve((0, 5))
    driver.wait(19.9)
    assert not driver.asked(pb.ClaimQueuesRequest)
    driver.wait(0.2)
    assert not driver.claim(floor=0, resets=1), "the answer tells of the reset"
    assert driver.one(actions.StopQueue) == actions.StopQueue(held["t", 0], Why.RESET)
    (again,) = driver.claim(floor=0, resets=1)
    assert (again.progress.floor, again.state) == (0, QueueState.SERVING)


def test_a_lease_is_renewed_at_a_third_and_counts_from_when_it_was_asked_for() -> None:
    driver = GroupDriver(lease_ms=30_000)
    _, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.wait(9.9)
    assert not driver.asked(pb.ClaimQueuesRequest)
    driver.wait(0.2)
    ((call, _),) = driver.asked(pb.ClaimQueuesRequest)
    asked_at = driver.now
    driver.now += 5.0  # the answer takes long
    row = pb.ClaimQueuesReply.Row(lease_left_ms=30_000)
    driver.core.answered(call, pb.ClaimQueuesReply(rows=[row], now_ms=1), driver.now)
    assert queue.lease_end < asked_at + 30.0
    assert queue.state is QueueState.SERVING


def test_a_holder_that_cannot_renew_stops_before_its_lease_ends() -> None:
    driver = GroupDriver(lease_ms=30_000)
    _, held = driver.serve((0, 5))
    queue, began = held["t", 0], driver.now
    queue.progress.done(0)
    while driver.now < began + 28.4:
        assert queue.may_hand_out(driver.now)
        driver.wait(0.1)
        for call, _ in driver.asked(pb.ClaimQueuesRequest):
            driver.core.unanswered(call, driver.now)
    driver.wait(0.2)
    assert not queue.may_hand_out(driver.now)
    assert driver.one(actions.StopQueue).why is Why.LOST
    driver.wait(1.0)
    (again,) = driver.claim(floor=1)
    assert again.epoch == 5


def test_a_queue_that_another_consumer_leases_is_asked_for_until_it_is_free() -> None:
    driver = GroupDriver(lease_ms=30_000)
    stream = driver.join()
    driver.assign(stream, (0, 5))
    assert not driver.claim(code=Code.LEASED, lease_left_ms=400)
    driver.wait(0.3)
    assert not driver.asked(pb.ClaimQueuesRequest)
    driver.wait(0.2)
    assert driver.claim(floor=0)


def test_a_failure_is_told_until_it_is_stored_and_the_record_is_not_done_before() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.core.fail(Failure(queue, 0, 0, "bad"), driver.now)
    ((call, request),) = driver.asked(pb.FailRecordsRequest)
    assert (request.records[0].offset, request.records[0].attempts) == (0, 0)
    driver.core.unanswered(call, driver.now)
    assert queue.progress.floor == 0
    driver.assign(stream, (0, 5), revoked=0)
    driver.core.let_go(queue, driver.now)
    driver.wait(1.0)
    assert not driver.release(), "the failure is not stored"
    ((call, _),) = driver.asked(pb.FailRecordsRequest)
    row = pb.FailRecordsReply.Row(attempts=1, due_ms=11_000)
    driver.core.answered(call, pb.FailRecordsReply(rows=[row], now_ms=1_000), driver.now)
    told = driver.one(actions.Failed)
    assert (told.attempts, told.is_done, told.again_at) == (1, True, driver.now + 10.0)
    assert queue.progress.floor == 1
    assert driver.commit() == [(0, 1, [])]
    assert driver.release() == [0]


def test_a_queue_of_which_something_is_refused_begins_anew() -> None:
    driver = GroupDriver()
    _, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.core.fail(Failure(queue, 0, 0, "bad"), driver.now)
    ((call, _),) = driver.asked(pb.FailRecordsRequest)
    other = pb.FailRecordsReply.Row(code=Code.INVALID_ARGUMENT, detail="it has 2 attempts")
    driver.core.answered(call, pb.FailRecordsReply(rows=[other], now_ms=1), driver.now)
    assert driver.one(actions.StopQueue).why is Why.RESET
    assert not driver.asked(pb.ClaimQueuesRequest), "after a while"
    driver.wait(1.1)
    (again,) = driver.claim(floor=0)
    assert (again.epoch, again.progress.floor) == (5, 0)


def answer_failures(driver: GroupDriver, *codes: Code) -> list[int]:
    """Answer the failures under way; return their offsets."""
    ((call, request),) = driver.asked(pb.FailRecordsRequest)
    rows = [pb.FailRecordsReply.Row(code=code, attempts=1) for code in codes]
    driver.core.answered(call, pb.FailRecordsReply(rows=rows, now_ms=1), driver.now)
    return [failed.offset for failed in request.records]


@pytest.mark.parametrize(
    "code", [Code.TOO_MANY_TIMERS, Code.QUEUE_NOT_FOUND, Code.TOPIC_NOT_FOUND, Code.DISK_FULL]
)
def test_one_failure_that_is_refused_rests_and_everything_else_goes_on(code: Code) -> None:
    driver = GroupDriver()
    _, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.core.fail(Failure(queue, 0, 0, "bad"), driver.now)
    assert answer_failures(driver, code) == [0]
    assert not driver.all_of(actions.StopQueue), "the queue stays"
    assert queue.may_hand_out(driver.now)
    driver.core.fail(Failure(queue, 1, 0, "bad"), driver.now)
    assert answer_failures(driver, Code.OK) == [1], "others do not wait for it"
    assert (queue.progress.floor, queue.progress.ranges()) == (0, [(1, 2)])
    pauses: list[float] = []
    for _ in range(10):
        before = driver.now
        while not (asked := driver.asked(pb.FailRecordsRequest)):
            driver.wait(0.25)
        pauses.append(driver.now - before)
        rows = [pb.FailRecordsReply.Row(code=code)]
        driver.core.answered(asked[0][0], pb.FailRecordsReply(rows=rows, now_ms=1), driver.now)
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(pauses) == REST_SECONDS_MAX
    driver.wait(REST_SECONDS_MAX)
    assert answer_failures(driver, Code.OK) == [0]
    assert queue.progress.floor == 2


def test_a_queue_that_is_asked_back_does_not_wait_for_a_failure_that_is_refused() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.core.fail(Failure(queue, 0, 0, "bad"), driver.now)
    answer_failures(driver, Code.TOO_MANY_TIMERS)
    driver.assign(stream, (0, 5), revoked=0)
    driver.core.let_go(queue, driver.now)
    assert driver.release() == [0]
    assert not driver.commit(), "the record is not done: its next owner gets it"


def test_a_claim_that_does_not_help_is_not_made_again_and_again() -> None:
    driver = GroupDriver()
    _, held = driver.serve((0, 5))
    driver.core.fail(Failure(held["t", 0], 0, 0, "bad"), driver.now)
    answer_failures(driver, Code.INVALID_ARGUMENT)
    assert driver.one(actions.StopQueue).why is Why.RESET
    driver.wait(1.1)
    (again,) = driver.claim(floor=0)
    driver.core.fail(Failure(again, 0, 0, "bad"), driver.now)
    answer_failures(driver, Code.INVALID_ARGUMENT)
    assert not driver.all_of(actions.StopQueue)
    driver.wait(0.5)
    assert answer_failures(driver, Code.OK) == [0]


def test_a_paused_group_hands_out_nothing_until_it_goes_on() -> None:
    driver = GroupDriver()
    _, held = driver.serve((0, 5))
    queue = held["t", 0]
    driver.core.fail(Failure(queue, 0, 0, "bad"), driver.now)
    ((call, _),) = driver.asked(pb.FailRecordsRequest)
    paused = pb.FailRecordsReply.Row(code=Code.GROUP_PAUSED)
    driver.core.answered(call, pb.FailRecordsReply(rows=[paused], now_ms=1), driver.now)
    assert not queue.may_hand_out(driver.now)
    assert not driver.asked(pb.FailRecordsRequest), "it is asked again after a while"
    driver.wait(0.5)
    ((call, _),) = driver.asked(pb.FailRecordsRequest)
    stored = pb.FailRecordsReply.Row(attempts=1)
    driver.core.answered(call, pb.FailRecordsReply(rows=[stored], now_ms=1), driver.now)
    driver.wait(1.0)
    assert queue.may_hand_out(driver.now)


def test_closing_lets_everything_go_and_gives_nothing_back_before_it_leaves() -> None:
    driver = GroupDriver()
    stream, held = driver.serve((0, 5), (1, 6))
    held["t", 0].progress.done(0)
    driver.core.close(driver.now)
    driver.assign(stream, (0, 5), (1, 6), (2, 7))
    for queue in held.values():
        driver.core.let_go(queue, driver.now)
    assert driver.commit() == [(0, 1, [])]
    driver.release()
    driver.release()
    assert driver.core.is_empty
    assert not driver.given_back(), "it would be granted to this consumer again"
    driver.core.leave()
    assert driver.one(actions.TellSession).request.WhichOneof("what") == "leave"


def test_a_queue_of_a_deleted_topic_goes_alone_and_does_not_hold_up_the_end() -> None:
    driver = GroupDriver(commit_interval=1.0)
    _, held = driver.serve((0, 5), (1, 6))
    for queue in held.values():
        queue.progress.done(0)
    driver.core.close(driver.now)
    for queue in held.values():
        driver.core.let_go(queue, driver.now)
    ((call, _),) = driver.asked(broker_pb2.CommitOffsetsRequest)
    reply = broker_pb2.CommitOffsetsReply(
        codes=[Code.TOPIC_NOT_FOUND, Code.OK], stored_offsets=[-1, 1]
    )
    driver.core.answered(call, reply, driver.now)
    assert held["t", 0].state is QueueState.GONE
    assert driver.release() == [1]
    assert driver.core.is_empty
