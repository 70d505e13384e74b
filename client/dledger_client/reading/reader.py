"""Reads a range as Arrow batches, from one member and then the next. Blocking, one thread.

Owns: which member is asked, when the reader leaves a member for another, when a range is given up,
the renewal of the hold. Not: decoding and its checks (`arrow/decode.py`), what is read (`plan.py`),
how long a member that was left is asked last (`left.py`).

All members give the same records; some are further than others (D9). So the reader leaves a member
that fails, sends damaged bytes, or sends nothing for a while. It continues at the exact next offset
at another member. The decoder counts offsets, so nothing is handed out twice and nothing is left
out.
"""

import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

import grpc
import pyarrow as pa

from dledger_client._core.retry import backoff
from dledger_client._core.routes import GroupRoute, RouteTable
from dledger_client._shell import calls
from dledger_client._shell.wire import (
    channel_options,
    credentials_of,
    failure,
    group_metadata,
    tls_of,
)
from dledger_client.arrow import Decoder, ExpectedQueue, Span
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, client_error, code_of, error_of
from dledger_client.reading.holds import Hold
from dledger_client.reading.left import LeftMembers
from dledger_client.reading.plan import Range, Trimmed
from dledger_client.reading.watchdog import Watchdog
from dledger_client.unreadable import SPARK_REMEDY, Unreadable
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.login.blocking import BlockingTokens
from dledger_proto.rpc.frames import FetchFrame, parse_fetch
from dledger_proto.rpc.raw import (
    FETCH,
    Metadata,
    SyncCall,
    open_sync_channel,
    sync_read,
    sync_unary,
)
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2

FRAME_BYTES: Final = MIB
"""Bytes of one answer. A member serves its group in the same interpreter. With answers of four
times this size its writes waited twice as long beside a paced read, and reading was no faster."""
WAIT_MS: Final = 500
"""A member that has nothing says so this often."""
SILENCE_MS: Final = 20 * WAIT_MS
"""The reader leaves a member that is silent for this long. A frame must arrive by then."""
EMPTY_FRAMES_MAX: Final = 4
"""Empty frames from a member that lags, before the reader asks the next member."""
BAD_ANSWERS_MAX: Final = 4
"""Damaged answers at one offset, from members in turn, before the range fails."""
ROUTES_SECONDS: Final = 2.0
LEAVE_FOR: Final = (Code.OFFSET_OUT_OF_RANGE, Code.HEAD_TRIMMED, Code.STORAGE_FAILED)
"""Answers about this member only: another one may have the range, or this one a moment later.
HEAD_TRIMMED is a loss only with a minimum that says so: bounds may be from before the trim."""
NEVER: Final = (Code.INVALID_ARGUMENT, Code.NO_PERMISSION, Code.UNAUTHENTICATED)
"""What a call without an answer says of the caller: no member will take it."""

OF_PROCESS: Final = LeftMembers()
"""Spark's workers and those of exports run one task after the other."""
_LOG = logging.getLogger("dledger_client")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where ranges are read from. Pickles: no channel is open in it."""

    bootstrap: tuple[str, ...]
    groups: tuple[GroupRoute, ...]
    """As of the plan; the reader asks for new ones when no member answers."""
    read_from: str = "follower"
    """Which member is asked first: "follower", "leader" or "any"."""
    rotation: int = 0
    """Tells parallel readers apart, so that they begin with different members."""
    fail_on_data_loss: bool = True
    stall_ms: int = 60_000
    """A range fails when no member sends a record of it for this long."""
    connection: ConnectionConfig = field(default_factory=ConnectionConfig)
    fail_on_unreadable: bool = True
    """False: batches that cannot be decoded are left out, and `RangeReader.gaps` names them."""


class RangeReader:
    """Reads ranges one after the other; use it in a `with`."""

    def __init__(
        self, origin: Origin, columns: Sequence[str], left: LeftMembers = OF_PROCESS
    ) -> None:
        """`left` outlives this reader: a job has one reader for each partition."""
        self.origin = origin
        self.left = left
        self.columns = tuple(columns)
        self._routes = {group.name: group for group in origin.groups}
        self._channels: dict[str, grpc.Channel] = {}
        self._tls = tls_of(origin.connection)
        self._tokens = BlockingTokens(credentials_of(origin.connection), time.monotonic, os.urandom)
        self.watchdog = Watchdog(min(SILENCE_MS, origin.stall_ms) / 1_000)
        """Bounds the wait for a member's answer, not the time that a caller spends on a batch."""
        self._random = random.Random(os.urandom(8))  # noqa: S311  spreads load, guards nothing
        self.gaps: list[Trimmed | Unreadable] = []
        """Records that were gone or could not be decoded; empty unless that is accepted."""
        self.compacted = 0
        """Offsets that were passed over because their records were compacted; they are no gap."""

    def __enter__(self) -> "RangeReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.watchdog.close()
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    def read(self, wanted: Range, hold: Hold | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the whole range in order. ClientError names the offset that no member sent."""
        return _Reading(self, wanted, hold).run()

    # For _Reading.

    def pause(self, tries: int) -> None:
        """Wait before another round over all members."""
        Event().wait(backoff(tries, self._random))

    def channel(self, address: str) -> grpc.Channel:
        """Return the connection to a member."""
        channel = self._channels.get(address)
        if channel is None:
            options = channel_options(self.origin.connection)
            channel = open_sync_channel(address, options, self._tls)
            self._channels[address] = channel
        return channel

    def metadata(self, address: str, group: str = "") -> Metadata:
        """Return what calls to a member carry; ClientError when it takes no login."""
        try:
            timeout = self.origin.connection.try_timeout_ms / 1_000
            token = self._tokens.of(address, self.channel(address), timeout)
            return (*group_metadata(group), *token)
        except (grpc.RpcError, DledgerError) as error:
            raise failure(error, write=False) from None

    def failure(self, address: str, error: grpc.RpcError) -> ClientError:
        """Return what a broken call to a member means; forget a login that ended."""
        broken = failure(error, write=False)
        if broken.code is Code.UNAUTHENTICATED and self._tokens.refused(address):
            return error_of(Code.UNAVAILABLE, f"{address}: logging in again: {broken.detail}")
        return broken

    def candidates(self, group: str) -> list[str]:
        """Return the addresses of a group in the order in which they are asked."""
        route = self._routes.get(group)
        if route is None:
            return []
        addresses = route.addresses()
        leader: list[str] = []
        if self.origin.read_from != "any" and route.leader_address in addresses:
            # Out before the others are rotated, or one of them would have its turns as well.
            addresses.remove(route.leader_address)
            leader = [route.leader_address]
        turn = self.origin.rotation % max(len(addresses), 1)
        addresses = addresses[turn:] + addresses[:turn]
        in_turn = leader + addresses if self.origin.read_from == "leader" else addresses + leader
        return self.left.in_order(in_turn, time.monotonic())

    def refresh(self) -> None:
        """Ask name servers, and the members known, for routes until one of them answers."""
        members = [address for route in self._routes.values() for address in route.addresses()]
        for address in dict.fromkeys([*self.origin.bootstrap, *members]):
            unary = sync_unary(self.channel(address), calls.GET_ROUTES.path)
            request = routes_pb2.RoutesRequest().SerializeToString()
            try:
                metadata = self.metadata(address)
                answer = unary(request, timeout=ROUTES_SECONDS, metadata=metadata)
                reply = answer_of(routes_pb2.RoutesReply, answer, write=False)
            except grpc.RpcError as error:
                _LOG.debug("routes from %s: %s", address, self.failure(address, error))
                continue
            except (ClientError, DledgerError) as error:
                _LOG.debug("routes from %s: %s", address, error)
                continue
            table = RouteTable(inside=self.origin.connection.inside)
            table.apply(reply)
            self._routes.update({group.name: group for group in table.groups()})
            return

    def renew(self, address: str, wanted: Range, hold: Hold) -> None:
        """Renew a hold at one member. A failure is logged; a trim that follows is an error."""
        request = pb.HoldAllRequest(ttl_ms=hold.ttl_ms)
        ref = pb.QueueRef(topic_id=wanted.topic_id, queue=wanted.queue)
        request.queues.add(queue=ref, offset=hold.offset, owner=hold.owner)
        unary = sync_unary(self.channel(address), calls.HOLD_ALL.path)
        try:
            answer = unary(
                request.SerializeToString(),
                timeout=self.origin.connection.try_timeout_ms / 1_000,
                metadata=self.metadata(address, wanted.group),
            )
            reply = answer_of(pb.HoldAllReply, answer, write=True)
        except grpc.RpcError as error:
            broken = self.failure(address, error)
            _LOG.warning("%s: hold not renewed at %s: %s", wanted.describe(), address, broken)
            return
        except (ClientError, DledgerError) as error:
            _LOG.warning("%s: hold not renewed at %s: %s", wanted.describe(), address, error)
            return
        for code, detail in zip(map(code_of, reply.codes), reply.details, strict=False):
            if code is not Code.OK:
                _LOG.warning("%s: hold refused: %s %s", wanted.describe(), code.name, detail)


class _LeaveMember(Exception):
    """The next member should be asked; holds why."""

    def __init__(self, error: ClientError, *, is_at_fault: bool = True) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_at_fault = is_at_fault
        """False: its answer was true, so it may be asked again like any other member."""


def _next_or_never(error: ClientError) -> Exception:
    """Return what ends a read at one member, or at all: a wrong secret is wrong everywhere."""
    return error if error.code in NEVER else _LeaveMember(error)


class _Reading:
    """The reading of one range."""

    def __init__(self, reader: RangeReader, wanted: Range, hold: Hold | None) -> None:
        self._reader = reader
        self._range = wanted
        self._hold = hold
        source = ExpectedQueue(wanted.topic, wanted.topic_id, wanted.queue, wanted.group)
        tell = None if reader.origin.fail_on_unreadable else self._pass_over
        self._decoder = Decoder(source, reader.columns, wanted.start, wanted.end, tell)
        self._progress_at = time.monotonic()
        self._renewed_at = 0.0
        self._bad_answers = 0

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield everything; see `RangeReader.read`."""
        tries = 0
        last: ClientError | None = None
        while not self._decoder.is_done:
            before = self._decoder.next_offset
            for address in self._reader.candidates(self._range.group):
                try:
                    yield from self._from_member(address)
                except _LeaveMember as left:
                    last = left.error
                    if left.is_at_fault:
                        self._reader.left.leave(address, time.monotonic())
                    _LOG.debug("%s left at %s: %s", address, self._decoder.next_offset, last)
                if self._decoder.is_done:
                    return
            tries = 0 if self._decoder.next_offset > before else tries + 1
            if time.monotonic() - self._progress_at > self._reader.origin.stall_ms / 1_000:
                raise self._stalled(last)
            self._reader.pause(tries)
            self._reader.refresh()

    def _stalled(self, last: ClientError | None) -> ClientError:
        code = last.code if last is not None and last.definite else Code.UNAVAILABLE
        because = f"; last: {last.code.name} {last.detail}" if last is not None else ""
        return error_of(
            code,
            f"{self._range.describe()}: no member of group {self._range.group} brings offset "
            f"{self._decoder.next_offset} within {self._reader.origin.stall_ms} ms{because}",
        )

    def _from_member(self, address: str) -> Iterator[pa.RecordBatch]:
        """Yield what one member sends until the range ends; _LeaveMember: ask the next member."""
        self._renew(address)
        wanted = self._range
        request = pb.FetchRequest(
            max_bytes=FRAME_BYTES,
            wait_ms=WAIT_MS,
            with_positions="log_position" in self._reader.columns,
        )
        ref = pb.QueueRef(topic_id=wanted.topic_id, queue=wanted.queue)
        request.assignments.add(queue=ref, offset=self._decoder.next_offset)
        try:
            metadata = self._reader.metadata(address, wanted.group)
        except ClientError as error:
            raise _next_or_never(error) from None
        call = sync_read(self._reader.channel(address), FETCH)(
            request.SerializeToString(), metadata=metadata
        )
        try:
            yield from self._frames(call, address)
        except TimeoutError as error:
            raise _LeaveMember(error_of(Code.UNAVAILABLE, f"{address}: {error}")) from None
        except grpc.RpcError as error:
            raise _next_or_never(self._reader.failure(address, error)) from None
        finally:
            call.cancel()

    def _frames(self, call: SyncCall, address: str) -> Iterator[pa.RecordBatch]:
        empty = 0
        while (message := self._reader.watchdog.next_of(call)) is not None:
            try:
                frame = parse_fetch(message)
            except DledgerError as error:
                raise self._bad(error) from error
            if frame.code is not Code.OK:
                self._refused(frame)
            before, gone = self._decoder.next_offset, self._decoder.gone
            spans = [
                Span(
                    row.base_offset, row.first_record, row.record_count, row.store_time_ms,
                    batch, row.position,
                )
                for row, batch in zip(frame.rows, frame.batches, strict=True)
            ]  # fmt: skip
            try:
                yield from self._decoded(spans)
            finally:
                self._reader.compacted += self._decoder.gone - gone
            if self._decoder.next_offset == before:  # nothing, or what was read already
                empty += 1
                if empty >= EMPTY_FRAMES_MAX:
                    text = f"{address} sends nothing new, its queue ends at {frame.max_offset}"
                    raise _LeaveMember(error_of(Code.UNAVAILABLE, text))
                continue
            empty = self._bad_answers = 0
            self._progress_at = time.monotonic()
            self._reader.left.worked(address)
            if self._decoder.is_done:
                return
            self._renew(address)
        raise _LeaveMember(error_of(Code.UNAVAILABLE, f"{address} ended the stream"))

    def _decoded(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        batches = self._decoder.decode(spans)
        while True:
            try:
                batch = next(batches, None)
            except DledgerError as error:
                if error.code is Code.UNREADABLE_BATCH:  # whoever is asked has the same bytes
                    raise error_of(error.code, f"{error.detail}; {SPARK_REMEDY}") from error
                raise self._bad(error) from error
            if batch is None:
                return
            self._progress_at = time.monotonic()
            self._bad_answers = 0
            yield batch
            # The time that a caller spends on a batch is no stall of the member.
            self._progress_at = time.monotonic()

    def _pass_over(self, what: Unreadable) -> None:
        self._reader.gaps.append(what)
        _LOG.warning("%s", what.describe())
        self._progress_at = time.monotonic()

    def _bad(self, error: DledgerError) -> Exception:
        """Return what follows a damaged answer: another member, or the end after several."""
        self._bad_answers += 1
        if self._bad_answers >= BAD_ANSWERS_MAX:
            return client_error(error)
        return _LeaveMember(client_error(error))

    def _refused(self, frame: FetchFrame) -> None:
        """Raise what an error frame means, or continue behind lost records if that is accepted."""
        wanted, at = self._range, self._decoder.next_offset
        if frame.code in (Code.OFFSET_OUT_OF_RANGE, Code.HEAD_TRIMMED) and frame.min_offset > at:
            if self._reader.origin.fail_on_data_loss:
                raise error_of(
                    Code.OFFSET_OUT_OF_RANGE,
                    f"{wanted.describe()}: wanted offset {at}, the earliest is {frame.min_offset}:"
                    " trimmed since the plan was made; start later or set failOnDataLoss=false",
                )
            gap = Trimmed(wanted.topic, wanted.queue, at, min(frame.min_offset, wanted.end))
            self._reader.gaps.append(gap)
            _LOG.warning("%s", gap.describe())
            self._decoder.next_offset = gap.end
            lost = error_of(Code.OFFSET_OUT_OF_RANGE, gap.describe())
            raise _LeaveMember(lost, is_at_fault=False)
        error = error_of(frame.code, f"{wanted.describe()}: {frame.detail}", repeatable=True)
        if error.retriable or frame.code in LEAVE_FOR:
            raise _LeaveMember(error)
        raise error

    def _renew(self, address: str) -> None:
        now = time.monotonic()
        hold = self._hold
        if hold is not None and now - self._renewed_at > hold.ttl_ms / 3_000:
            self._renewed_at = now
            self._reader.renew(address, self._range, hold)
