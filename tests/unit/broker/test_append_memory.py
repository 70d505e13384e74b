"""What one append stream keeps in memory, measured by the buffers that its views keep alive."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.rpc.frames import encode_append
from dledger_proto.rpc.views import kept_bytes
from tests.unit.broker.fakes import TOPIC, batch
from tests.unit.broker.stream_stage import END, Stage, answer, run

UNKNOWN_TOPIC = b"u" * 16


def test_a_frame_counts_as_a_whole_until_its_last_batch_is_answered() -> None:
    """Three large batches are refused at once; the small one waits, and its view keeps all."""

    async def scenario() -> None:
        stage = Stage(stream_bytes_max=5 * MIB)
        serving = stage.start()
        flipped = bytearray(batch(bytes(2 * MIB)))
        flipped[-1] ^= 1
        large = bytes(flipped)
        for number in (1, 5):
            stage.put(number, large, batch(b"small"), large, large)
        await stage.settled(lambda: len(stage.router.items) == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        kept = kept_bytes([item.batch for item in stage.router.items])
        assert kept > 6 * MIB
        assert stage.admission.append_bytes.used == kept
        assert stage.reads == 1, "the stream is not read on either"
        answer(stage.router.items[0])
        await stage.settled(lambda: len(stage.router.items) == 2)
        answer(stage.router.items[1])
        stage.inbox.put_nowait(END)
        await serving
        assert stage.admission.append_bytes.used == 0

    run(scenario)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without the collector of cycles: a member lets it look far between."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", ["stored", "damaged", "refused"])
def test_a_stream_keeps_no_frame_while_it_waits_for_the_next(kind: str) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.rule.refused[UNKNOWN_TOPIC] = DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")
        serving = stage.start()
        data = bytearray(batch(b"a", UNKNOWN_TOPIC if kind == "refused" else TOPIC))
        data[-1] ^= kind == "damaged"
        frame = encode_append([bytes(data)], 1, 1_000)
        held = sys.getrefcount(frame)
        stage.inbox.put_nowait(frame)
        if kind == "stored":
            await stage.settled(lambda: len(stage.router.items) == 1)
            answer(stage.router.items[0])
        await stage.settled(lambda: len(stage.rows()) == 1)
        assert sys.getrefcount(frame) == held
        stage.inbox.put_nowait(END)
        await serving

    run(scenario)
