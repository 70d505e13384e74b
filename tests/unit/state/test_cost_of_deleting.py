"""What deleting costs: rows that are gone, but not saved yet, are not gone over with each entry.

They lie in the overlay as marks until the next save. A scan that begins where the deleting began
meets all of them again, so a trim slowed every entry after it.
"""

from collections.abc import Iterator

import pytest

from dledger.state.lookup.message_ids import BUCKET_NUMBERS
from dledger.state.producers.table import ACTIVITY_STEP_MS
from dledger.state.queues.garbage import GARBAGE_ROWS_PER_ENTRY
from dledger.state.queues.table import ROWS_PER_BLOCK
from dledger.state.queues.trim import Trim
from dledger.state.results import ProducersExpired
from dledger.state.tables import Table
from dledger.state.values import LayoutPart
from dledger.store.store import Overlay, Value
from tests.unit.state.kit import GROUP, TOPIC, batch, create, started


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of deleted rows that scans went over."""
    found: list[bytes] = []
    rows = Overlay.rows

    def noted(
        self: Overlay, start: bytes, stop: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, Value | None]]:
        for key, value in rows(self, start, stop, reverse=reverse):
            if value is None:
                found.append(key)
            yield key, value

    monkeypatch.setattr(Overlay, "rows", noted)
    return found


def test_the_rows_of_a_trim(visited: list[bytes]) -> None:
    driven = started()
    blocks = 20 * GARBAGE_ROWS_PER_ENTRY
    for _ in range(blocks):
        driven.append(*[batch()] * ROWS_PER_BLOCK)
    driven.append(batch())
    driven.save()
    driven.one(Trim(TOPIC, 0, blocks * ROWS_PER_BLOCK))
    driven.idle(21)
    assert len(visited) <= blocks
    assert sum(key[0] == Table.QUEUE_ROWS for key in driven.rows()) == 1


def test_the_rows_of_many_trims(visited: list[bytes]) -> None:
    driven = started()
    trims, blocks = 30, GARBAGE_ROWS_PER_ENTRY // 2
    for _ in range(trims * blocks):
        driven.append(*[batch()] * ROWS_PER_BLOCK)
    driven.append(batch())
    driven.save()
    for number in range(1, trims + 1):
        driven.one(Trim(TOPIC, 0, number * blocks * ROWS_PER_BLOCK))
        driven.idle()
    assert len(visited) <= 2 * trims * blocks
    assert sum(key[0] == Table.QUEUE_ROWS for key in driven.rows()) == 1


def test_the_queues_of_a_producer(visited: list[bytes]) -> None:
    queues = 1_000
    driven = started(create(layout=(LayoutPart(GROUP, queues),)))
    driven.register()
    driven.append(*(batch(queue=queue, sequence=0, number=queue) for queue in range(queues)))
    driven.count_time(2 * ACTIVITY_STEP_MS)
    driven.save()
    visited.clear()
    assert driven.count_time(0, 0) == ProducersExpired(1, more=False)
    assert len(visited) < 256


def test_the_message_ids_of_what_was_trimmed(visited: list[bytes]) -> None:
    driven, other = started(), b"Q" * 16  # swept behind the first producer
    driven.register()
    driven.register(other)
    old = 1_000
    for at in range(old):
        driven.append(batch(sequence=at, number=at * BUCKET_NUMBERS))
    driven.append(batch(queue=1, sequence=0, number=old * BUCKET_NUMBERS))
    driven.save()
    driven.one(Trim(TOPIC, 0, old))
    for at in range(old // 8):
        driven.append(batch(queue=1, producer=other, sequence=at, number=at * BUCKET_NUMBERS))
    gone = old - sum(
        key[0] == Table.MESSAGE_IDS and key[1:17] == b"P" * 16 for key in driven.rows()
    )
    visited.clear()
    for at in range(old // 8, old // 8 + 8):
        driven.append(batch(queue=1, producer=other, sequence=at, number=at * BUCKET_NUMBERS))
    assert gone > old // 4, "there is much to go over"
    assert len(visited) <= gone
