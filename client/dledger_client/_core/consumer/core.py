"""A whole consumer without I/O: positions, streams to members, arriving frames. Pure.

Owns: which offset each queue continues at, which streams are open, what of an arriving frame is
new. Not: handing records out (`buffer.py`), which member is asked (`members.py`), sockets and calls
(`_shell/consumer.py`), where to begin (the engine finds an offset and tells).

How to drive it, as `ProducerCore`: call an input, carry out `take_actions()`; inputs are `assign`,
`unassign`, `seek`, `pause`, `resume`, `frame`, `stream_down`, `routes_changed`, `member_ready`,
`tick`. A stream is read on only while `wants_more`.

One stream serves all queues of a group that have the same priority. A change of what is wanted
(assignment, seek, pause, another member) ends the stream and opens another at the exact next
offsets. Frames of a stream that is not the newest of its key are dropped: this is how `seek`
fences old frames.
"""

import random
from typing import Final

from dledger_client._core.consumer.actions import (
    Action,
    CloseFetch,
    FindOffset,
    OpenFetch,
    TellUnreadable,
)
from dledger_client._core.consumer.buffer import FetchBuffer
from dledger_client._core.consumer.state import FetchStream, Place, QueueRead, StreamKey, Wanted
from dledger_client._core.members import MemberChoice
from dledger_client._core.retry import backoff
from dledger_client._core.routes import RefreshRoutes, RouteChange, RouteTable
from dledger_client.errors import ClientError, client_error, error_of, invalid
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import BatchView, check_envelope
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import FetchFrame, FetchRow, RowOrigin

BAD_FRAMES_MAX: Final = 3
"""Damaged or impossible answers for one offset, from members in turn, before the queue fails."""
OUT_OF_RANGE: Final = frozenset((Code.OFFSET_OUT_OF_RANGE, Code.HEAD_TRIMMED))


class ConsumerCore:
    """Everything one consumer reads."""

    def __init__(
        self,
        routes: RouteTable,
        members: MemberChoice,
        generator: random.Random,
        *,
        prefer: str,
        buffer_bytes: int,
        fail_on_unreadable: bool = True,
    ) -> None:
        self._routes = routes
        self._members = members
        self._random = generator
        self._prefer = prefer
        self.buffer = FetchBuffer(buffer_bytes, fail_on_unreadable=fail_on_unreadable)
        self._reads = self.buffer.reads
        self._streams: dict[StreamKey, FetchStream] = {}
        """By group and priority, the newest."""
        self._by_id: dict[int, FetchStream] = {}
        self._stale: dict[StreamKey, None] = {}
        """Those whose stream no longer asks for what is wanted, in order."""
        self._open_at: dict[StreamKey, float] = {}
        self._failures: dict[StreamKey, int] = {}
        self._next_id = 0
        self._actions: list[Action] = []

    # What is read.

    def places(self) -> list[Place]:
        """Return all assigned queues."""
        return list(self._reads)

    def read(self, place: Place) -> QueueRead:
        """Return the state of an assigned queue; InvalidRequest when it is not assigned."""
        read = self._reads.get(place)
        if read is None:
            raise invalid(f"topic {place[0]} queue {place[1]} is not assigned to this consumer")
        return read

    def assign(self, place: Place, topic_id: bytes, group: str, offset: int) -> QueueRead:
        """Read a queue from `offset` on, also if it is assigned already; return its state."""
        self.unassign(place)
        route = self._routes.topic(place[0])
        priority = route.priority_of(place[1]) if route is not None else 0
        read = QueueRead(place, topic_id, group, offset, offset, priority)
        self.buffer.add(read)
        self._renew(read.stream_key)
        return read

    def unassign(self, place: Place) -> None:
        """Stop reading a queue; its buffered records are dropped."""
        read = self.buffer.remove(place)
        if read is not None:
            self._renew(read.stream_key)

    def seek(self, place: Place, offset: int) -> None:
        """Continue a queue at `offset`; buffered records and those on their way are dropped."""
        read = self.read(place)
        self.buffer.drop(read)
        read.position = read.fetch_at = offset
        read.gone = 0
        read.error = None
        read.is_lost = False
        read.bad_frames = 0
        self._renew(read.stream_key)

    def fail(self, place: Place, error: ClientError) -> None:
        """Note that a queue cannot be read on; `take` raises it until a seek."""
        read = self._reads.get(place)
        if read is not None:
            self._note_error(read, error)
            self._renew(read.stream_key)

    def _note_error(self, read: QueueRead, error: ClientError) -> None:
        """Keep the error for `take`; a topic that is gone is looked up anew next time."""
        read.error = error
        topic = read.place[0]
        route = self._routes.topic(topic)
        if error.code is Code.TOPIC_NOT_FOUND and route is not None and route.id == read.topic_id:
            self._routes.drop_topic(topic, RouteChange())

    def pause(self, place: Place) -> None:
        """Hand out and fetch nothing of a queue until `resume`; its buffer and position stay."""
        read = self.read(place)
        if not read.is_paused:
            read.is_paused = True
            self._renew(read.stream_key)

    def resume(self, place: Place) -> None:
        """Undo `pause`."""
        read = self.read(place)
        if read.is_paused:
            read.is_paused = False
            self._renew(read.stream_key)

    def stop_fetching(self, place: Place) -> None:
        """Fetch nothing of a queue until `fetch_again`; what is buffered is handed out."""
        read = self.read(place)
        read.is_filled = True
        self._renew(read.stream_key)

    def fetch_again(self, place: Place) -> None:
        """Undo `stop_fetching` and `give_up`."""
        read = self.read(place)
        if read.is_filled:
            read.is_filled = False
            self._renew(read.stream_key)

    def give_up(self, place: Place) -> None:
        """Fetch nothing of a queue, and drop what is buffered of it: it leaves others no room."""
        read = self.read(place)
        self.buffer.drop(read)
        read.fetch_at = read.position
        read.gone = 0
        self.stop_fetching(place)

    def continue_at(self, place: Place, offset: int) -> None:
        """Fetch on at `offset` behind a gap; records buffered before it are still handed out."""
        read = self.read(place)
        if offset != read.fetch_at:
            read.gone = 0
        if not read.buffer:
            read.position = offset - read.gone
        read.fetch_at = offset
        read.is_lost = False
        self._renew(read.stream_key)

    def _renew(self, key: StreamKey) -> None:
        """End a stream now, so that its frames no longer count, and open another."""
        self._close(key)
        self._stale[key] = None

    # Streams.

    def pump(self, now: float) -> None:
        """Open and close streams until they ask for what is wanted. Call after every input."""
        for key in list(self._stale):
            if now < self._open_at.get(key, 0.0):
                continue
            del self._stale[key]
            self._close(key)
            wanted = [
                Wanted(read.place, read.topic_id, read.fetch_at)
                for read in self._reads.values()
                if read.stream_key == key and self._is_wanted(read)
            ]
            if wanted:
                self._open(key, wanted, now)

    @staticmethod
    def _is_wanted(read: QueueRead) -> bool:
        return not (read.is_paused or read.is_filled or read.is_lost) and read.error is None

    def _open(self, key: StreamKey, wanted: list[Wanted], now: float) -> None:
        group, _ = key
        route = self._routes.group(group)
        address = ""
        if route is not None:
            address = self._members.choose_reader(route, self._prefer, now, self._random)
        if not address:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._retry_later(key, now)
            self._actions.append(RefreshRoutes())
            return
        self._next_id += 1
        stream = FetchStream(self._next_id, key, address, wanted)
        self._streams[key] = self._by_id[stream.id] = stream
        self._actions.append(OpenFetch(stream.id, group, address, tuple(wanted)))

    def _close(self, key: StreamKey) -> None:
        stream = self._streams.pop(key, None)
        if stream is not None:
            del self._by_id[stream.id]
            self._actions.append(CloseFetch(stream.id))

    def _retry_later(self, key: StreamKey, now: float) -> None:
        self._open_at[key] = now + backoff(self._failures.get(key, 1), self._random)
        self._stale[key] = None

    def wants_more(self, stream: int) -> bool:
        """Return whether a stream may be read on."""
        known = self._by_id.get(stream)
        return known is None or self.buffer.wants_more(known.key[1])

    def stream_down(self, stream: int, error: DledgerError, now: float) -> None:
        """Take in that a stream ended; another is opened at the exact next offsets."""
        gone = self._by_id.pop(stream, None)
        if gone is None:
            return
        key = gone.key
        del self._streams[key]
        self._members.failed(gone.address, now)
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        if not error.retriable and error.definite:
            for wanted in gone.wanted:
                self.fail(wanted.place, client_error(error))
        route = self._routes.group(key[0])
        if failures >= (len(route.members) if route is not None else 1):
            self._actions.append(RefreshRoutes())
            self._retry_later(key, now)
        self._stale[key] = None
        self.pump(now)

    def routes_changed(self, change: RouteChange, now: float) -> None:
        """Take in what changed in the routes."""
        changed = change.new_leaders | change.members
        for key in [each for each in self._open_at if each[0] in changed]:
            if key not in self._streams:
                del self._open_at[key]
        for key, stream in sorted(self._streams.items()):
            route = self._routes.group(key[0])
            if (
                key[0] in changed
                and self._prefer == "leader"
                and route is not None
                and route.has_leader
                and stream.address != route.leader_address
            ):
                self._members.worked(route.leader_address)
                self._stale[key] = None
        for read in self._reads.values():
            topic = self._routes.topic(read.place[0])
            if topic is not None and topic.id == read.topic_id:
                group_now = topic.group_of(read.place[1])
                if group_now is not None and group_now != read.group:
                    self._stale[read.stream_key] = None
                    read.group = group_now
                    self._stale[read.stream_key] = None
        self.pump(now)

    def member_ready(self, address: str, now: float, *, is_ready: bool) -> None:
        """Take in whether a connection to a member stands."""
        self._members.set_ready(address, is_ready=is_ready)
        if is_ready:
            self.pump(now)

    # Frames.

    def frame(self, stream: int, frame: FetchFrame, now: float) -> None:
        """Take in a frame of a stream; frames of a stream that was replaced are dropped."""
        source = self._by_id.get(stream)
        if source is None:
            return
        if frame.assignment >= len(source.wanted):
            self._bad(
                source,
                None,
                f"assignment {frame.assignment} is none that this consumer asked for",
                now,
            )
            self.pump(now)
            return
        read = self._reads[source.wanted[frame.assignment].place]
        if read.is_lost or read.error is not None:
            return
        if frame.code is not Code.OK:
            self._refused(source, read, frame, now)
        else:
            self._failures.pop(source.key, None)
            self._members.worked(source.address)
            read.minimum, read.maximum = frame.min_offset, frame.max_offset
            origins = frame.origins
            for at, (row, batch) in enumerate(zip(frame.rows, frame.batches, strict=True)):
                origin = origins.get(at) if origins else None
                if not self._take_row(source, read, row, batch, now, origin):
                    break
        self.pump(now)

    def _take_row(
        self,
        source: FetchStream,
        read: QueueRead,
        row: FetchRow,
        batch: memoryview,
        now: float,
        origin: RowOrigin | None,
    ) -> bool:
        end = row.base_offset + row.record_count
        if end <= read.fetch_at:
            return True  # had before
        if row.base_offset > read.fetch_at:
            if read.minimum > read.fetch_at:
                self._lose(read, f"offset {read.fetch_at} is below the minimum {read.minimum}")
            else:
                self._bad(
                    source, read, f"offset {row.base_offset} came instead of {read.fetch_at}", now
                )
            return False
        if row.is_gone:
            read.gone += end - read.fetch_at
            read.fetch_at = end
            read.bad_frames = 0
            return True
        try:
            header = check_envelope(batch)
        except DledgerError as error:
            self._bad(source, read, f"batch at offset {row.base_offset}: {error.detail}", now)
            return False
        if row.first_record + row.record_count > header.record_count:
            self._bad(
                source, read, f"a row names {row.record_count} records, its batch has fewer", now
            )
            return False
        skip = read.fetch_at - row.base_offset
        run = RecordBatch(
            read.place[0],
            read.place[1],
            read.fetch_at,
            BatchView(batch, header),
            row.first_record + skip,
            row.record_count - skip,
            row.store_time_ms,
            read.group,
            origin,
            read.gone,
        )
        self.buffer.append(read, run)
        read.fetch_at = end
        read.gone = 0
        read.bad_frames = 0
        return True

    def _refused(self, source: FetchStream, read: QueueRead, frame: FetchFrame, now: float) -> None:
        """Handle the error of one assignment; the stream goes on for the others."""
        detail = f"{source.address}: {frame.detail}"
        error = error_of(frame.code, f"{read.name}: {detail}", repeatable=True)
        if frame.code in OUT_OF_RANGE:
            self._lose(read, detail)
        elif error.retriable:
            self._failures[source.key] = self._failures.get(source.key, 0) + 1
            self._actions.append(RefreshRoutes())
            self._retry_later(source.key, now)
        else:
            self._note_error(read, error)

    def _lose(self, read: QueueRead, detail: str) -> None:
        if not read.is_lost:
            read.is_lost = True
            self._actions.append(FindOffset(read.place, read.fetch_at, detail))

    def _bad(self, source: FetchStream, read: QueueRead | None, detail: str, now: float) -> None:
        """Handle bytes that cannot be right: ask another member, give up after a few."""
        if read is not None:
            read.bad_frames += 1
            if read.bad_frames >= BAD_FRAMES_MAX:
                read.error = error_of(
                    Code.CORRUPT_BATCH, f"{read.name}: {source.address}: {detail}"
                )
        self._members.failed(source.address, now)
        self._renew(source.key)

    # Time.

    def tick(self, now: float) -> None:
        """Let time pass: back-offs."""
        self.pump(now)

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` has to be called next."""
        times = [time for group in self._stale if (time := self._open_at.get(group, 0.0)) > now]
        return min(times, default=None)

    def take_actions(self) -> list[Action]:
        """Return what the driver has to do now, in order."""
        taken, self._actions = self._actions, []
        told = self.buffer.take_passed_over()
        return [*taken, *(TellUnreadable(*each) for each in told)] if told else taken
