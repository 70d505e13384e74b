"""Claims, commits and resets of consumer groups: fences, leases, floors, ranges (D21, D22)."""

from dataclasses import replace

import pytest

from dledger.state.consumers.groups import DeleteConsumerGroup
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings, StartFrom
from dledger.state.offsets import CommitOffset, DoneRange
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, ReleaseQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.fence import BY_STAMP
from dledger.state.progress.ranges import RANGES_MAX
from dledger.state.progress.row import Progress, decode_progress
from dledger.state.progress.start import BeginQueues, NewQueue
from dledger.state.queues.trim import Trim
from dledger.state.results import (
    Claimed,
    OffsetsCommitted,
    QueuesBegun,
    QueuesClaimed,
    QueuesReleased,
)
from dledger.state.tables import PREFIX, Table
from dledger.state.topics.commands import DeleteTopic
from dledger_proto.errors import Code
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS, SETTINGS, with_group
from tests.unit.state.kit import TOPIC, Driven, batch, code_of

ORDERED = replace(SETTINGS, order=ConsumeOrder.QUEUE)
FIRST = replace(SETTINGS, start=StartFrom.FIRST)


def claim(
    driven: Driven,
    epoch: int,
    member: str = "a",
    *,
    topic: bytes = TOPIC,
    queue: int = 0,
    over: int = 0,
    time_ms: int | None = None,
) -> Claimed:
    command = ClaimQueues("billing", member, (WantedQueue(topic, queue, epoch, over),))
    result = driven.one(command, time_ms)
    assert isinstance(result, QueuesClaimed), result
    return result.rows[0]


def release(driven: Driven, epoch: int, member: str = "a") -> Code:
    result = driven.one(ReleaseQueues("billing", member, (GrantedQueue(TOPIC, 0, epoch),)))
    assert isinstance(result, QueuesReleased), result
    return result.codes[0]


def commit(
    driven: Driven,
    offset: int,
    epoch: int = 0,
    member: str = "a",
    *,
    resets: int = 0,
    done: tuple[tuple[int, int], ...] = (),
    reset: bool = False,
    group: str = "billing",
) -> tuple[Code, int]:
    ranges = tuple(DoneRange(*each) for each in done)
    item = CommitOffset(TOPIC, 0, offset, "", epoch, resets, ranges)
    result = driven.one(CommitOffsets(group, (item,), reset, member if epoch else ""))
    assert isinstance(result, OffsetsCommitted), result
    return result.codes[0], result.stored_offsets[0]


def floor_of(taken: Claimed) -> tuple[Code, int | None]:
    return taken.code, None if taken.row is None else taken.row.floor


def test_a_newer_claim_fences_whoever_had_the_queue() -> None:
    """An old owner speaks late, by a commit, a renewal or a release: each is refused (D21)."""
    driven = with_group(FIRST)
    driven.append(batch(10))
    assert floor_of(claim(driven, 5)) == (Code.OK, 0)
    assert commit(driven, 3, 5) == (Code.OK, 3)
    assert floor_of(claim(driven, 9, "b")) == (Code.OK, 3)
    assert commit(driven, 4, 5) == (Code.FENCED, 3)
    assert claim(driven, 5).code is Code.FENCED
    assert release(driven, 5) is Code.FENCED
    assert commit(driven, 4, 9, "b") == (Code.OK, 4)


def test_an_epoch_is_of_one_consumer() -> None:
    driven = with_group(FIRST)
    driven.append(batch(10))
    claim(driven, 5)
    assert claim(driven, 5, "b").code is Code.FENCED
    assert commit(driven, 4, 5, "b") == (Code.FENCED, 0)
    assert commit(driven, 4, 6, "a") == (Code.FENCED, 0)
    assert claim(driven, 5).code is Code.OK


def test_a_commit_by_assignment_is_refused_while_a_claim_lasts() -> None:
    driven = with_group(FIRST)
    driven.append(batch(10))
    assert commit(driven, 1) == (Code.OK, 1)
    claim(driven, 5)
    assert commit(driven, 2) == (Code.FENCED, 1)
    assert release(driven, 5) is Code.OK
    assert commit(driven, 2) == (Code.OK, 2)
    assert commit(driven, 1) == (Code.OFFSET_BEHIND, 2)


def test_nothing_of_a_claim_that_was_given_back_is_taken() -> None:
    """Its epoch stays as a fence; a copy of the claim or of a commit that comes late is refused."""
    driven = with_group(FIRST)
    driven.append(batch(10))
    claim(driven, 5)
    assert release(driven, 5) is Code.OK
    assert release(driven, 5) is Code.OK
    assert claim(driven, 5).code is Code.FENCED
    assert commit(driven, 2, 5) == (Code.FENCED, 0)
    assert claim(driven, 4, "b").code is Code.FENCED
    assert claim(driven, 6, "b").code is Code.OK


def leased_at(taken: Claimed) -> int:
    assert taken.row is not None
    return taken.row.leased_at


def test_an_ordered_claim_is_a_lease_until_a_leader_says_that_it_is_over() -> None:
    """However late the stamps are; and a renewal that came between keeps the holder in."""
    driven = with_group(ORDERED)
    driven.append(batch(10))
    taken = claim(driven, 5, time_ms=10_000)
    assert (taken.code, taken.lease_left_ms) == (Code.OK, 30_000)
    refused = claim(driven, 7, "b", time_ms=20_000)
    assert (refused.code, refused.lease_left_ms) == (Code.LEASED, 20_000)
    renewed = claim(driven, 5, time_ms=30_000)
    assert renewed.code is Code.OK
    assert claim(driven, 7, "b", time_ms=90_000).code is Code.LEASED
    assert claim(driven, 7, "b", over=leased_at(taken)).code is Code.LEASED
    assert claim(driven, 7, "b", over=leased_at(renewed)).code is Code.OK
    assert claim(driven, 5).code is Code.FENCED


def test_a_claim_of_an_older_dledger_is_a_lease_by_leader_stamps() -> None:
    driven = with_group(ORDERED)
    driven.append(batch(10))
    taken = claim(driven, 5, over=BY_STAMP, time_ms=10_000)
    assert (taken.code, taken.lease_left_ms, leased_at(taken)) == (Code.OK, 30_000, 0)
    assert claim(driven, 7, "b", over=BY_STAMP, time_ms=39_999).code is Code.LEASED
    assert claim(driven, 7, "b", time_ms=39_999).code is Code.LEASED
    assert claim(driven, 7, "b", time_ms=40_000).code is Code.OK
    assert claim(driven, 9, over=BY_STAMP, time_ms=69_999).code is Code.LEASED
    assert claim(driven, 9, over=BY_STAMP, time_ms=70_000).code is Code.OK


def test_a_lease_that_is_given_back_keeps_nobody_waiting() -> None:
    driven = with_group(ORDERED)
    driven.append(batch(10))
    claim(driven, 5, time_ms=10_000)
    release(driven, 5)
    assert claim(driven, 7, "b", time_ms=10_001).code is Code.OK


def test_a_reset_lets_nobody_else_in_before_the_lease_ends() -> None:
    """The holder may still have a record in hand (trap 16)."""
    driven = with_group(ORDERED)
    driven.append(batch(10))
    claim(driven, 5, time_ms=10_000)
    assert commit(driven, 2, reset=True) == (Code.OK, 2)
    assert claim(driven, 7, "b").code is Code.LEASED
    assert floor_of(claim(driven, 5)) == (Code.OK, 2)


def test_no_consumer_commits_over_a_reset() -> None:
    driven = with_group(FIRST)
    driven.append(batch(10))
    claim(driven, 5)
    assert commit(driven, 6, 5, done=((8, 9),)) == (Code.OK, 6)
    assert commit(driven, 2, reset=True) == (Code.OK, 2)
    assert commit(driven, 7, 5) == (Code.OFFSET_RESET, 2)
    taken = claim(driven, 5)
    assert taken.row is not None
    assert (taken.code, taken.row.floor, taken.row.resets, taken.row.done) == (Code.OK, 2, 1, [])
    assert commit(driven, 3, 5, resets=1) == (Code.OK, 3)
    assert commit(driven, 10, reset=True) == (Code.OK, 10)
    assert commit(driven, 3, 5, resets=1) == (Code.OFFSET_RESET, 10)


def test_done_ranges_merge_into_the_floor_in_any_order() -> None:
    driven = with_group(FIRST)
    driven.append(batch(20))
    claim(driven, 5)
    assert commit(driven, 0, 5, done=((5, 7), (2, 3))) == (Code.OK, 0)
    assert commit(driven, 1, 5, done=((3, 5),)) == (Code.OK, 1)
    assert commit(driven, 0, 5, done=((1, 2), (9, 10))) == (Code.OK, 7)
    assert commit(driven, 2, 5) == (Code.OK, 7)  # a copy that comes late undoes nothing
    taken = claim(driven, 5)
    assert taken.row is not None
    assert (taken.row.floor, taken.row.done) == (7, [(9, 10)])
    assert commit(driven, 21, 5) == (Code.OFFSET_OUT_OF_RANGE, 7)
    assert commit(driven, 8, 5, done=((19, 21),)) == (Code.OFFSET_OUT_OF_RANGE, 7)
    assert commit(driven, 8, 5, done=((11, 11),)) == (Code.INVALID_ARGUMENT, 7)
    assert commit(driven, 20, 5) == (Code.OK, 20)


def test_a_queue_has_at_most_so_many_done_ranges() -> None:
    """A named refusal at the limit, and nothing is dropped in silence."""
    driven = with_group(FIRST)
    driven.append(batch(1_000))
    claim(driven, 5)
    every_other = [(2 * number + 1, 2 * number + 2) for number in range(RANGES_MAX + 1)]
    assert commit(driven, 0, 5, done=tuple(every_other[:-1])) == (Code.OK, 0)
    assert commit(driven, 0, 5, done=(every_other[-1],)) == (Code.TOO_MANY_RANGES, 0)
    taken = claim(driven, 5)
    assert taken.row is not None
    assert taken.row.done == every_other[:-1]
    assert commit(driven, 1, 5, done=(every_other[-1],)) == (Code.OK, 2)


@pytest.mark.parametrize(
    ("settings", "floor"),
    [
        (replace(SETTINGS, start=StartFrom.FIRST), 4),
        (replace(SETTINGS, start=StartFrom.LAST), 30),
        (replace(SETTINGS, start=StartFrom.TIME, start_time_ms=2_500), 20),
        (replace(SETTINGS, start=StartFrom.TIME, start_time_ms=0), 4),
        (replace(SETTINGS, start=StartFrom.TIME, start_time_ms=9_000), 30),
    ],
)
def test_a_group_begins_where_its_settings_say(settings: GroupSettings, floor: int) -> None:
    """Also at a head that is trimmed; the first claim decides for good (S103, S104)."""
    driven = with_group(settings)
    driven.append(batch(10), time_ms=2_000)
    driven.append(batch(10), time_ms=2_500 - 1)
    driven.append(batch(10), time_ms=3_000)
    driven.one(Trim(TOPIC, 0, 4))
    assert floor_of(claim(driven, 5)) == (Code.OK, floor)
    driven.append(batch(10))
    assert floor_of(claim(driven, 6)) == (Code.OK, floor)


def test_last_misses_nothing_of_a_queue_that_is_younger_than_the_group() -> None:
    """What comes into a new queue before anybody claims it is not skipped (S103)."""
    driven = with_group(replace(SETTINGS, start=StartFrom.LAST, start_time_ms=2_000))
    driven.append(batch(3, queue=0), time_ms=1_999)
    driven.append(batch(3, queue=1), time_ms=2_000)
    assert floor_of(claim(driven, 5, queue=0)) == (Code.OK, 3)
    assert floor_of(claim(driven, 5, queue=1)) == (Code.OK, 0)
    assert floor_of(claim(driven, 5, queue=2)) == (Code.OK, 0)


def test_last_begins_at_the_head_that_is_left_of_a_younger_queue() -> None:
    """A trim between its creation and the first claim hides nothing (S103)."""
    driven = with_group(replace(SETTINGS, start=StartFrom.LAST, start_time_ms=500))
    driven.append(batch(10), time_ms=2_000)
    driven.append(batch(10), time_ms=2_000)
    driven.one(Trim(TOPIC, 0, 3))
    assert floor_of(claim(driven, 5)) == (Code.OK, 3)


def test_last_begins_where_the_group_began_to_want_the_queue() -> None:
    """What came between the first join and the first claim is not skipped (S103)."""
    driven = with_group(replace(SETTINGS, start=StartFrom.LAST, start_time_ms=3_000))
    driven.append(batch(10), time_ms=2_000)
    driven.append(batch(10), time_ms=4_000)
    driven.append(batch(10), time_ms=5_000)
    wanted = tuple(NewQueue(TOPIC, queue, 4_000) for queue in (0, 1, 9))
    begun = BeginQueues("billing", wanted)
    assert driven.one(begun) == QueuesBegun(2)
    assert floor_of(claim(driven, 5)) == (Code.OK, 10)
    assert floor_of(claim(driven, 5, queue=1)) == (Code.OK, 0)
    assert commit(driven, 12, 5) == (Code.OK, 12)
    assert driven.one(begun) == QueuesBegun(0)
    assert floor_of(claim(driven, 5)) == (Code.OK, 12)
    assert code_of(driven.one(BeginQueues("nobody", wanted))) is Code.CONSUMER_GROUP_NOT_FOUND


def test_a_group_takes_over_what_its_name_committed() -> None:
    driven = with_group(SETTINGS, create=False)
    driven.append(batch(10))
    assert commit(driven, 4) == (Code.OK, 4)
    assert commit(driven, 4, 5) == (Code.CONSUMER_GROUP_NOT_FOUND, -1)
    with_group(SETTINGS, driven=driven)
    stored = driven.machine.queries.read_group_offset("billing", TOPIC, 0)
    assert stored is not None
    assert stored.offset == 4
    assert floor_of(claim(driven, 5)) == (Code.OK, 4)
    assert not [key for key in driven.rows() if key.startswith(PREFIX[Table.GROUP_OFFSET])]


@pytest.mark.parametrize("deleted", ["group", "topic"])
def test_deletion_frees_the_rows(deleted: str) -> None:
    """And a group of the same name that is created later begins anew."""
    driven = with_group(FIRST)
    driven.append(batch(10), batch(10, queue=1))
    for queue in range(2):
        claim(driven, 5, queue=queue)
    commit(driven, 6, 5)
    driven.one(DeleteConsumerGroup(BILLING) if deleted == "group" else DeleteTopic(TOPIC))
    driven.idle(3)
    assert not [key for key in driven.rows() if key.startswith(PREFIX[Table.PROGRESS])]
    if deleted == "group":
        with_group(FIRST, driven=driven, group_id=b"C" * 16)
        assert floor_of(claim(driven, 3)) == (Code.OK, 0)


def test_bad_claims_are_refused_by_name() -> None:
    driven = with_group(FIRST)
    no_group = ClaimQueues("nobody", "a", (WantedQueue(TOPIC, 0, 1),))
    assert code_of(driven.one(no_group)) is Code.CONSUMER_GROUP_NOT_FOUND
    assert code_of(driven.one(ClaimQueues("billing", "", ()))) is Code.INVALID_ARGUMENT
    assert code_of(driven.one(ReleaseQueues("nobody", "a", ()))) is Code.CONSUMER_GROUP_NOT_FOUND
    assert claim(driven, 0).code is Code.INVALID_ARGUMENT
    assert claim(driven, 1, queue=9).code is Code.QUEUE_NOT_FOUND
    assert claim(driven, 1, topic=b"x" * 16).code is Code.TOPIC_NOT_FOUND
    assert claim(driven, 1, topic=DEAD_LETTERS).code is Code.INVALID_ARGUMENT


def test_a_paused_group_is_handed_nothing_new() -> None:
    driven = with_group(replace(FIRST, paused=True))
    driven.append(batch(10))
    assert claim(driven, 5).code is Code.GROUP_PAUSED


def test_resets_are_counted_round() -> None:
    """A reset must never fail to be written: apply would end every member."""
    row = Progress(0, resets=(1 << 32) - 1)
    row.reset(3)
    assert decode_progress(row.encode()).resets == 0


@pytest.mark.parametrize(
    ("floor", "done", "minimum", "waiting", "lost"),
    [
        (20, [], 10, 80, 0),
        (20, [(30, 35)], 10, 75, 0),
        (20, [(30, 35)], 40, 60, 15),
        (20, [(30, 50)], 40, 50, 10),
        (20, [(20, 40)], 30, 60, 0),
        (100, [], 30, 0, 0),
    ],
)
def test_what_waits_and_what_was_lost(
    floor: int, done: list[tuple[int, int]], minimum: int, waiting: int, lost: int
) -> None:
    row = Progress(floor, done=done)
    assert (row.waiting(minimum, 100), row.lost(minimum)) == (waiting, lost)
