"""Why a group takes no proposal, in words."""

import pytest

from dledger.raft.commit.refusals import _no_room
from dledger.types import DiskRoom


@pytest.mark.parametrize(
    ("own_room", "refused_from", "said"),
    [
        (DiskRoom.LOW, DiskRoom.LOW, "free space is below the low-water mark"),
        (DiskRoom.FULL, DiskRoom.LOW, "free space is below the low-water mark"),
        (DiskRoom.FULL, DiskRoom.FULL, "free space is below half of the low-water mark"),
        (
            DiskRoom.LOW,
            DiskRoom.FULL,
            "free space is below half of the low-water mark on too many members",
        ),
    ],
)
def test_a_refusal_for_room_says_which_mark_and_whose_disk(
    own_room: DiskRoom, refused_from: DiskRoom, said: str
) -> None:
    assert _no_room(own_room, refused_from) == said
