"""The calls of one client over connections that it may share with others.

Owns: which calls are under way, and their end when the client closes. Not: connections
(`connections.py`), streams of messages: the tasks that read them end them.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import grpc
import grpc.aio

from dledger_client._shell.wire import Channels, Method, Reply, Request, failure
from dledger_client.errors import ClientClosed, ClientError, error_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import Metadata, RawReadCall, raw_read, read_frame


class OwnCalls:
    """What one client calls; all methods on the loop's thread."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._running: set[grpc.aio.Call] = set()
        self._is_ended = False

    async def ready(self, address: str, group: str) -> tuple[grpc.aio.Channel, Metadata]:
        """See `Channels.ready`."""
        self._check_open()
        return await self._channels.ready(address, group)

    def failure(
        self,
        channel: grpc.aio.Channel,
        error: grpc.RpcError | DledgerError,
        metadata: Metadata,
        *,
        write: bool,
    ) -> ClientError:
        """See `Channels.failure`."""
        return self._channels.failure(channel, error, metadata, write=write)

    async def call(
        self,
        address: str,
        method: Method[Request, Reply],
        request: Request,
        *,
        group: str,
        timeout: float,
    ) -> Reply:
        """Make one try of a call at one address; ClientError. `timeout` in seconds."""
        self._check_open()
        with self._told_of_end(write=method.is_write, repeatable=method.is_repeatable):
            return await self._channels.call(
                address, method, request, group=group, timeout=timeout, running=self._running
            )

    async def read(self, address: str, path: str, request: bytes, *, group: str) -> RawReadCall:
        """Ask one address for a stream of answers."""
        self._check_open()
        channel = self._channels.to(address)
        try:
            metadata = await self._channels.metadata(channel, group)
        except (grpc.aio.AioRpcError, DledgerError) as error:
            raise failure(error, write=False) from None
        except TimeoutError:
            raise error_of(Code.UNAVAILABLE, f"{address}: no login in time") from None
        self._check_open()
        stream = raw_read(channel, path)(request, metadata=metadata)
        self._running.add(stream)
        stream.add_done_callback(lambda _: self._running.discard(stream))
        return stream

    async def next_of(self, stream: RawReadCall) -> bytes | None:
        """Return the next message of such a stream, None at its end."""
        with self._told_of_end(write=False):
            return await read_frame(stream)

    @contextmanager
    def _told_of_end(self, *, write: bool, repeatable: bool = False) -> Generator[None]:
        """Raise what the end of the client means for a call that is under way in this block."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_ended or task is None or task.cancelling():
                raise
            raise _ended(write=write, repeatable=repeatable) from None

    def _check_open(self) -> None:
        if self._is_ended:
            raise ClientClosed(Code.CLOSED, "this client is closed")

    def end(self) -> None:
        """End what is under way; refuse what comes."""
        self._is_ended = True
        for call in list(self._running):
            call.cancel()


def _ended(*, write: bool, repeatable: bool) -> ClientError:
    """Return UnknownOutcome for a write: the member may carry it out. ClientClosed for all else."""
    code = Code.UNKNOWN_OUTCOME if write else Code.CLOSED
    return error_of(code, "this client was closed during the call", repeatable=repeatable)
