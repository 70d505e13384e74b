"""Frames of batches that were carried forward: read where they lie, named as before (D7)."""

import asyncio

import pytest

from dledger.log.errors import SpanGone
from dledger.types import Span
from tests.unit.broker.test_fetch import FakeLog, Stage, bodies, source


def move_first(stage: Stage) -> None:
    """Copy the first batch to the end of the log, and let its old bytes go."""
    row = stage.queries.rows[0][0]
    old = bytes(stage.log.data[row.position : row.position + row.size])
    place, _ = stage.log.add(old)
    stage.log.data[row.position : row.position + row.size] = bytes(row.size)
    stage.queries.rows[0][0] = row._replace(copy=place)


@pytest.mark.parametrize("cold", [False, True])
def test_a_carried_batch_is_read_where_it_lies(cold: bool) -> None:
    async def run() -> None:
        stage = Stage()
        for body in (b"a", b"b", b"c"):
            stage.queries.add(body)
        positions = [row.position for row in stage.queries.rows[0]]
        move_first(stage)
        stage.log.tail_from = len(stage.log.data) if cold else 0
        frames = await stage.once(source(), with_positions=True)
        assert [body for frame in frames for body in bodies(frame)] == [b"a", b"b", b"c"]
        assert [row.position for frame in frames for row in frame.rows] == positions

    asyncio.run(run())


class Moving(FakeLog):
    """The first read finds that the bytes have moved since the look at the state."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.data = stage.log.data
        self.tail_from = len(self.data)
        self._stage = stage
        self.is_gone = False

    def read_span(self, span: Span) -> bytes:
        if not self.reads:
            self.reads.append(span)
            if not self.is_gone:
                self._stage.log = self
                move_first(self._stage)
            raise SpanGone("trimmed")
        if self.is_gone:
            raise SpanGone("trimmed")
        return super().read_span(span)


def test_a_batch_that_moves_before_it_is_read_is_read_again() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        stage.log = Moving(stage)
        (frame,) = await stage.once(source())
        assert (frame.code, bodies(frame)) == (0, [b"a"])

    asyncio.run(run())


def test_a_batch_that_is_gone_for_good_is_an_error() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        stage.log = log = Moving(stage)
        log.is_gone = True
        (frame,) = await stage.once(source())
        assert "trimmed" in frame.detail

    asyncio.run(run())
