"""What a plan must not do in silence. Small enough to catch known bugs with."""

import pytest

from dledger_client.errors import OffsetOutOfRange
from dledger_client.reading import plan as plans
from tests.unit.proto.samples import TOPIC_ID

STATE = plans.QueueState("t", TOPIC_ID, 0, "g", 10, 100)


def test_lost_data_is_never_passed_over_in_silence() -> None:
    """What was trimmed before it was read is an error, unless that was accepted."""
    start = plans.Edge(offsets={"t": {0: 3}})
    with pytest.raises(OffsetOutOfRange):
        plans.resolve([STATE], start, plans.Edge())


def test_no_record_is_in_two_ranges_or_in_none() -> None:
    """However a queue is cut."""
    ranges = plans.cut(plans.Frozen(STATE, 10, 100), 7.5, 4)
    offsets = [offset for each in ranges for offset in range(each.start, each.end)]
    assert offsets == list(range(10, 100))
