"""Ordered consumers on two broker groups, all of them processes, while some are killed.

Goal: the order of each key, nothing lost, and nothing again that was committed. Method: a small run
here; `make ordered-consumers` makes one of 100,000 messages with five killed leaders.
"""

from pathlib import Path

import uvloop

from tests.programs.ordered_consumers import QUEUES, run

MESSAGES = QUEUES * 200


def test_killed_leaders_and_consumers_change_no_order(tmp_path: Path) -> None:
    """One leader and one consumer are killed, one consumer is added."""
    measured = uvloop.run(run(tmp_path, MESSAGES, kills=1))
    assert not measured.wrong
    assert 0.9 * MESSAGES < measured.messages <= MESSAGES
    assert measured.calls >= measured.messages
