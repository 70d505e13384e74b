"""Offsets of consumer groups: forward only, unless reset (I14, S99, S113)."""

from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.trim import Trim
from dledger.state.results import OffsetsCommitted
from dledger.state.values import StoredOffset
from dledger_proto.errors import Code
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, code_of, started


def commit(
    driven: Driven, offset: int, *, reset: bool = False, metadata: str = ""
) -> tuple[Code, int]:
    item = CommitOffset(TOPIC, 0, offset, metadata)
    result = driven.one(CommitOffsets("cg", (item,), reset))
    assert isinstance(result, OffsetsCommitted)
    return result.codes[0], result.stored_offsets[0]


def test_commits_go_forward_unless_reset() -> None:
    driven = started()
    driven.append(batch(10))
    assert driven.machine.queries.read_group_offset("cg", TOPIC, 0) is None
    assert commit(driven, 5, metadata="five") == (Code.OK, 5)
    assert driven.machine.queries.read_group_offset("cg", TOPIC, 0) == StoredOffset(
        5, "five", 1_000
    )
    assert commit(driven, 4) == (Code.OFFSET_BEHIND, 5)
    assert commit(driven, 5) == (Code.OK, 5)
    assert commit(driven, 10) == (Code.OK, 10)
    assert commit(driven, 2, reset=True) == (Code.OK, 2)
    assert commit(driven, 3) == (Code.OK, 3)


def test_commits_stay_within_the_queue() -> None:
    """Below the minimum is harmless, above the maximum or below 0 is refused, reset or not."""
    driven = started()
    driven.append(batch(10))
    driven.one(Trim(TOPIC, 0, 6))
    assert commit(driven, 3) == (Code.OK, 3)
    assert commit(driven, 11) == (Code.OFFSET_OUT_OF_RANGE, 3)
    assert commit(driven, -1, reset=True) == (Code.OFFSET_OUT_OF_RANGE, 3)
    assert commit(driven, 4, metadata="x" * 4_097) == (Code.INVALID_ARGUMENT, 3)
    assert commit(driven, 4, metadata="x" * 4_096) == (Code.OK, 4)


def test_each_offset_is_taken_or_refused_on_its_own() -> None:
    driven = started()
    driven.append(batch(10), batch(10, queue=1))
    items = (
        CommitOffset(TOPIC, 0, 4), CommitOffset(TOPIC, 9, 1), CommitOffset(OTHER_TOPIC, 0, 1),
        CommitOffset(TOPIC, 1, 11), CommitOffset(TOPIC, 1, 7),
    )  # fmt: skip
    assert driven.one(CommitOffsets("cg", items, member_id="m")) == OffsetsCommitted(
        (
            Code.OK, Code.QUEUE_NOT_FOUND, Code.TOPIC_NOT_FOUND, Code.OFFSET_OUT_OF_RANGE, Code.OK,
        ),
        (4, -1, -1, -1, 7),
    )  # fmt: skip


def test_groups_are_apart() -> None:
    driven = started()
    driven.append(batch(10))
    for group, offset in (("cg", 1), ("c", 2), ("cgg", 3)):
        driven.one(CommitOffsets(group, (CommitOffset(TOPIC, 0, offset),)))
    for group, offset in (("cg", 1), ("c", 2), ("cgg", 3)):
        stored = driven.machine.queries.read_group_offset(group, TOPIC, 0)
        assert stored is not None
        assert stored.offset == offset
    for group in ("", "x" * 121):
        assert code_of(driven.one(CommitOffsets(group, ()))) is Code.INVALID_ARGUMENT
