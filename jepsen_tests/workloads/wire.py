"""The wire's smallest client: what the public clients hide, because a good client never does it.

Owns raw calls to one chosen member, by `dledger_proto` alone: an append with a stamp of its own (to
repeat it as it was), and reading what that member alone holds.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

import grpc
import grpc.aio

from dledger_proto.batch.codec import BatchView, ProducerStamp, Record, check_batch, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import Keys, TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.frames import (
    AnswerRow,
    FetchFrame,
    encode_append,
    parse_answers,
    parse_fetch,
)
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc
from jepsen_tests.backends.surface import Backend

WAIT_MS: Final = 500
_OPTIONS: Final = (
    *raw.CHANNEL_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)


@asynccontextmanager
async def wires_to(backend: Backend, addresses: Sequence[str]) -> AsyncGenerator[list["Wire"]]:
    """Yield a connection to each of these members; close all at the end."""
    keys = TlsFolder(backend.tls_folder).current() if backend.tls_folder else None
    async with AsyncExitStack() as opened:
        wires: list[Wire] = []
        for address in addresses:
            wires.append(Wire(address, backend.group, keys))
            opened.push_async_callback(wires[-1].close)
        yield wires


@contextmanager
def _told_by_members(*, write: bool = True) -> Generator[None]:
    """Turn an error of gRPC into what the member said; a write's outcome may stay unknown."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, write=write) from error


class Wire:
    """A connection to one member."""

    def __init__(self, address: str, group: str, keys: Keys | None = None) -> None:
        """With `keys` it speaks TLS."""
        self._channel = open_channel(address, _OPTIONS, keys)
        self._stub: broker_pb2_grpc.BrokerAsyncStub = broker_pb2_grpc.BrokerStub(self._channel)
        self._admin: broker_pb2_grpc.AdminAsyncStub = broker_pb2_grpc.AdminStub(self._channel)
        self._metadata = (("dledger-group", group),)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(None)

    async def register(self, producer_id: bytes, timeout: float) -> int:
        """Register a producer that has one life, of the same id; return its epoch."""
        request = pb.RegisterProducerRequest(producer_id=producer_id, life_id=producer_id)
        with _told_by_members():
            reply = await self._stub.RegisterProducer(
                request, timeout=timeout, metadata=self._metadata
            )
        return reply.epoch

    async def topics(self, timeout: float) -> dict[str, str]:
        """Return the ids of all topics by name, as this member's group has them."""
        found: dict[str, str] = {}
        request = pb.ListTopicsRequest()
        while True:
            with _told_by_members(write=False):
                reply = await self._admin.ListTopics(
                    request, timeout=timeout, metadata=self._metadata
                )
            found |= {topic.name: topic.id.hex() for topic in reply.topics if not topic.deleted}
            if not reply.cursor:
                return found
            request.cursor = reply.cursor

    async def committed(self, group: str, topic: str, queue: int, timeout: float) -> int | None:
        """Return a consumer group's offset as this member confirms it; None: it has none."""
        request = pb.ReadOffsetsRequest(consumer_group=group)
        request.queues.add(topic=topic, queue=queue)
        with _told_by_members(write=False):
            reply = await self._stub.ReadOffsets(request, timeout=timeout, metadata=self._metadata)
        (found,) = reply.offsets
        return found.offset if found.offset >= 0 else None

    async def commit(
        self, group: str, place: tuple[str, int], offset: int, timeout: float, *, reset: bool
    ) -> None:
        """Store a consumer group's offset, in one try.

        The public client repeats the call. A repeat may take effect later, and the history would
        show the outcome of the last try only.
        """
        request = pb.CommitOffsetsRequest(consumer_group=group, reset=reset)
        request.offsets.add(queue=pb.QueueRef(topic=place[0], queue=place[1]), offset=offset)
        with _told_by_members():
            reply = await self._stub.CommitOffsets(
                request, timeout=timeout, metadata=self._metadata
            )
        code = Code(reply.codes[0])
        if code is not Code.OK:
            raise DledgerError(code, f"stored is {reply.stored_offsets[0]}")

    async def append(self, batch: bytes, timeout: float) -> AnswerRow:
        """Append one batch; raises what the member answered, or UNKNOWN_OUTCOME."""
        frame = encode_append([batch], 1, int(timeout * 1000))
        with _told_by_members():
            answer = await raw.raw_unary(self._channel, raw.APPEND_ONE)(
                frame, timeout=timeout, metadata=self._metadata
            )
        (row,) = parse_answers(answer)
        refused = row.error()
        if refused is not None:
            raise refused
        return row

    async def read(self, topic: str, queue: int, begin: int, end: int) -> AsyncIterator[FetchFrame]:
        """Yield what this member holds of a queue, from `begin` up to `end`."""
        request = pb.FetchRequest(wait_ms=WAIT_MS)
        request.assignments.add(queue=pb.QueueRef(topic=topic, queue=queue), offset=begin)
        call = raw.raw_read(self._channel, raw.FETCH)(
            request.SerializeToString(), metadata=self._metadata
        )
        try:
            with _told_by_members(write=False):
                async for message in call:
                    frame = parse_fetch(message)
                    if frame.code is not Code.OK:
                        raise DledgerError(frame.code, frame.detail)
                    yield frame
                    if frame.next_offset >= end:
                        return
        finally:
            call.cancel()


def batch_of(
    topic_id: bytes, queue: int, records: Sequence[Record], stamp: ProducerStamp | None
) -> bytes:
    """Return a batch; the same arguments give the same bytes."""
    return encode_batch(
        list(records),
        topic_id=topic_id,
        queue=queue,
        stamp=stamp,
        base_number=stamp.base_sequence if stamp is not None else 0,
        base_time_ms=1,
    )


def runs_of(frame: FetchFrame) -> list[tuple[int, list[Record]]]:
    """Return runs (offset of the first, records); DledgerError for a batch that is not whole.

    Offsets whose records were compacted belong to no run.
    """
    runs: list[tuple[int, list[Record]]] = []
    for row, batch in zip(frame.rows, frame.batches, strict=True):
        if row.is_gone:
            continue
        view = BatchView(batch, check_batch(batch))
        runs.append((row.base_offset, list(view.records(row.first_record, row.record_count))))
    return runs
