"""What a member holds of the shared topic is compared with the model, queue by queue.

Goal: a difference of any kind is a finding. Method: a member that holds a batch as it should, and
one that differs in one thing.
"""

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from dledger.state.values import Origin, QueueSpan
from dledger.types import Span
from dledger_proto.batch.codec import BatchView, Record
from dledger_proto.errors import Code, DledgerError
from tests.sim.clients.group.held import check_member
from tests.sim.invariants.delivery.queue_contents import Contents
from tests.sim.invariants.delivery.records import (
    Copy,
    Floor,
    SharedGroup,
    SharedRecords,
)
from tests.sim.invariants.violation import Property, Violation
from tests.unit.proto.samples import TOPIC_ID, make_batch

QUEUE: Final = (TOPIC_ID, 0)
RECORDS: Final = (Record(b"one", keys=("k1",)), Record(b"two", keys=("k2",)))


class Holder:
    """A process whose one queue holds one batch, or nothing."""

    name = "a"

    def __init__(self, batch: bytes = b"", minimum: int = 0, *, exists: bool = True) -> None:
        self._batch, self._minimum, self._exists = batch, minimum, exists
        self._count = len(BatchView(batch)) if batch else 0
        self.machine = SimpleNamespace(queries=self)
        self.log = self

    def queue_bounds(self, _topic_id: bytes, _queue: int) -> tuple[int, int]:
        """See `Queries.queue_bounds`."""
        if not self._exists:
            raise DledgerError(Code.QUEUE_NOT_FOUND, "no such queue")
        return self._minimum, self._count

    def spans(self, _topic_id: bytes, _queue: int, _at: int, _bytes: int) -> list[QueueSpan]:
        """See `Queries.spans`."""
        return [QueueSpan(0, 0, 0, self._count, len(self._batch), 1)]

    def origin(self, _topic_id: bytes, _queue: int, _base_offset: int) -> Origin | None:
        """See `Queries.origin`."""
        return None

    def read_span(self, span: Span) -> bytes:
        """See `CommitLog.read_span`."""
        return self._batch[: span.size]


def _batch(*records: Record) -> bytes:
    return make_batch(records, topic_id=TOPIC_ID, queue=0)


def _model(*records: Record) -> SharedRecords:
    model = SharedRecords([], Contents())
    model.home[QUEUE] = "h"
    if records:
        view = BatchView(_batch(*records))
        model.queues[QUEUE] = [
            Copy(view.message_id(place), record.keys[0], record.body, 0)
            for place, record in enumerate(records)
        ]
    return model


def _check(model: SharedRecords, holder: Holder, home: str = "h") -> None:
    check_member(model, cast("Any", holder), home)


def test_what_the_model_holds_is_no_finding() -> None:
    """Nor is a queue that nobody wrote to, nor one of another broker group."""
    _check(_model(*RECORDS), Holder(_batch(*RECORDS)))
    _check(_model(), Holder())
    _check(_model(*RECORDS), Holder(), home="another")


@pytest.mark.parametrize(
    ("model", "holder"),
    [
        (_model(*RECORDS), Holder()),
        (_model(), Holder(_batch(*RECORDS))),
        (_model(), Holder(exists=False)),
        (_model(*RECORDS), Holder(_batch(*RECORDS), minimum=1)),
        (_model(*RECORDS), Holder(_batch(RECORDS[0], Record(b"2", keys=("k2",))))),
        (_model(*RECORDS), Holder(_batch(RECORDS[0], Record(b"two", keys=("k",))))),
    ],
    ids=["lost", "not of the model", "no queue", "raised minimum", "another body", "another key"],
)
def test_a_difference_is_noticed(model: SharedRecords, holder: Holder) -> None:
    """Of each kind."""
    with pytest.raises(Violation) as caught:
        _check(model, holder)
    assert caught.value.broken is Property.DELIVERED


def test_dead_letters_are_trimmed_as_far_as_they_are_settled() -> None:
    """No further, and not less."""
    model = _model(*RECORDS)
    group = SharedGroup("g", cast("Any", None))
    group.dead_letters_id = TOPIC_ID
    group.floors[QUEUE] = Floor(floor=1)
    model.groups["g"] = group
    _check(model, Holder(_batch(*RECORDS), minimum=1))
    for minimum in (0, 2):
        with pytest.raises(Violation, match="bounds"):
            _check(model, Holder(_batch(*RECORDS), minimum=minimum))
