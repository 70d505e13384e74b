"""A consumer's engine: fetch streams around `ConsumerCore`.

Owns: carrying out the core's actions, reading streams only while the buffer has room (gRPC's flow
control then stops the member), waking those who poll, finding where a queue begins. Decides nothing
about records. All methods run on the event loop's thread.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial

import grpc.aio

from dledger_client._core.arguments import check_integer
from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import ConsumerCore
from dledger_client._core.consumer.state import Place, QueueRead
from dledger_client._core.routes import RefreshRoutes, RouteChange
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.driver import Driver
from dledger_client._shell.group.polling import Polling
from dledger_client._shell.queries import Queries
from dledger_client._shell.wire import failure
from dledger_client.config import PREFERENCES, ConsumerConfig, StartAt
from dledger_client.errors import ClientClosed, ClientError, error_of, invalid
from dledger_client.records import RecordBatch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FETCH_ASSIGNMENTS_MAX
from dledger_proto.rpc.frames import parse_fetches
from dledger_proto.rpc.raw import FETCH, raw_read, read_frame
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2

SILENCE_WAITS = 3
"""Waits of a member without even an empty frame after which its stream is given up."""
SILENCE_GRACE = 1.0
"""Seconds that are added to that time."""
BEHIND_SECONDS = 0.1
"""Before a queue is read on at an offset that a member refused, and that its leader has."""

Start = StartAt | int
_LOG = logging.getLogger("dledger_client")


class ConsumerEngine:
    """One consumer's streams and tasks."""

    def __init__(self, bootstrap: Sequence[str], config: ConsumerConfig) -> None:
        self.config = config
        self.cluster = Cluster(bootstrap, config.connection)
        self.queries = Queries(self.cluster)
        self.core = ConsumerCore(
            self.cluster.routes,
            self.cluster.members,
            self.cluster.generator,
            prefer=config.prefer,
            buffer_bytes=config.buffer_bytes,
            fail_on_unreadable=config.fail_on_unreadable,
        )
        self.driver = Driver("consumer", self.cluster, self.core, self._carry_out, self._settle)
        self.passed_over: Counter[Place] = Counter()
        """Records that could not be decoded, of queues that are assigned."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._whole: frozenset[str] = frozenset()
        """Topics that are read with all their queues."""
        self.cluster.listen(self._topics_changed)
        self.polling: Polling | None = None
        """The subscription, if there is one."""
        self._before: list[tuple[QueueRead, int]] = []
        """Where each queue was before the last poll, once that has begun to take records."""
        self.on_settled: Callable[[], None] | None = None
        """Called after every input, when records may have come."""
        self.on_empty: Callable[[Place, int, int], None] | None = None
        """Called with offsets of which the log holds no record that can be delivered: they are
        trimmed, or cannot be decoded and are left out."""
        self.is_closed = False

    async def start(self) -> None:
        """Begin to watch routes; ClientClosed after `close`."""
        self.check_open()
        self.driver.start()

    async def close(self, *, is_done: bool = True) -> None:
        """End all streams; what is buffered is dropped. A subscription commits and leaves first."""
        if self.is_closed:
            return
        self.is_closed = True
        self._news.set()
        if self.polling is not None:
            await self.polling.close(is_done=is_done)
        await self.driver.end()

    def check_open(self) -> None:
        """Refuse calls after `close`."""
        if self.is_closed:
            raise ClientClosed(Code.CLOSED, "this consumer is closed")

    # What is read.

    async def assign(
        self, starts: Mapping[Place, Start | None], whole: Collection[str] = ()
    ) -> None:
        """Read exactly these queues; None: the committed offset, or by `start_at`.

        Of the topics in `whole` queues that are added later are read, too.
        """
        self.check_open()
        if self.polling is not None:
            raise invalid("assign: this consumer has subscribed; its group decides what it reads")
        if whole and self.config.group:
            _LOG.warning(
                "assign reads all queues of %s, also those that other consumers of group %s read; "
                "subscribe shares them",
                ", ".join(sorted(whole)),
                self.config.group,
            )
        located = {place: await self.queries.located(place) for place in starts}
        _check_number(Counter(group for _, group in located.values()))
        await self._check_prefer({group for _, group in located.values()})
        offsets = await self._offsets_of(starts)
        located = {place: await self.queries.located(place) for place in starts}
        for place in self.core.places():
            if place not in starts:
                self.core.unassign(place)
                self.passed_over.pop(place, None)
        for place, offset in offsets.items():
            route, group = located[place]  # as of now: the offsets may have shown a topic anew
            self.core.assign(place, route.id, group, offset)
        self._whole = frozenset(whole)
        self._advance()

    def _topics_changed(self, change: RouteChange) -> None:
        for topic in sorted(change.topics & self._whole):
            self.driver.spawn(self._add_queues(topic))

    async def _add_queues(self, topic: str) -> None:
        """Read the queues that a topic was given since it was assigned, from their beginning."""
        route = self.cluster.routes.topic(topic)
        if route is None:
            return
        known = {queue for name, queue in self.core.places() if name == topic}
        added = [(topic, queue) for queue in range(route.readable_queues) if queue not in known]
        try:
            offsets = await self._offsets_of(dict.fromkeys(added, StartAt.FIRST))
        except ClientError as error:
            _LOG.warning("topic %s: its new queues cannot be read yet: %s", topic, error)
            self.cluster.refresh()
            return
        for place, offset in offsets.items():
            group = route.group_of(place[1])
            if group is not None and topic in self._whole and place not in self.core.places():
                self.core.assign(place, route.id, group, offset)
        self._advance()

    async def subscribe(self, subscriptions: Sequence[delivery_pb2.Subscription]) -> None:
        """Read what the group gives to this consumer."""
        self.check_open()
        if self.polling is not None or self.core.places():
            raise invalid("subscribe: this consumer has queues already; make another consumer")
        polling = Polling(self, subscriptions)
        self.polling = polling
        try:
            await polling.membership.start()
        except BaseException:
            self.polling = None
            raise

    async def done_with_poll(self) -> None:
        """Take in that the user is done with all records that were handed out."""
        self.check_open()
        if self.polling is not None:
            self.polling.done_with_poll()

    async def claim_again(self, places: Collection[Place]) -> None:
        """Learn of resets that this consumer has made itself."""
        if self.polling is not None:
            membership = self.polling.membership
            membership.core.claim_again(places, membership.driver.now())
            membership.driver.advance()

    async def let_go(self) -> None:
        """Give back queues that were revoked, and of which the user knows."""
        if self.polling is not None:
            self.polling.let_go()

    def wake(self) -> None:
        """Advance after a change of what is read, and wake who polls."""
        self._advance()
        self._news.set()

    async def _check_prefer(self, groups: Collection[str]) -> None:
        """Refuse a preferred member that no group has; without this its leader would be read.

        A name server that was just started does not know all members yet: others are asked too.
        """
        prefer = self.config.prefer
        if not groups or prefer in PREFERENCES:
            return
        names = self._member_names(groups)
        if prefer not in names:
            await self.cluster.refreshed()
            names |= self._member_names(groups)
        if prefer not in names:
            unknown = [group for group in groups if not self._member_names([group])]
            if unknown:
                raise error_of(
                    Code.UNAVAILABLE,
                    f"prefer: {prefer!r}: the members of {', '.join(sorted(unknown))} are not known"
                    " now",
                )
            choices = ", ".join([*PREFERENCES, *sorted(names)])
            raise invalid(f"prefer: {prefer!r}, must be one of {choices}")

    def _member_names(self, groups: Collection[str]) -> set[str]:
        routes = [self.cluster.routes.group(group) for group in groups]
        return {member.name for route in routes if route is not None for member in route.members}

    async def _offsets_of(self, starts: Mapping[Place, Start | None]) -> dict[Place, int]:
        """Return where each queue begins (S103)."""
        offsets: dict[Place, int] = {}
        for place, start in starts.items():
            if start is None or isinstance(start, StartAt):
                continue
            check_integer(f"{place[0]}/{place[1]}: offset", start)
            offsets[place] = start
        unset = [place for place, start in starts.items() if start is None]
        if unset and self.config.group:
            offsets |= await self.queries.committed(self.config.group, unset)
        open_places = [place for place in starts if place not in offsets]
        if open_places:
            bounds = await self.queries.bounds(open_places)
            for place in open_places:
                policy = starts[place]
                if not isinstance(policy, StartAt):
                    policy = self.config.start_at
                if policy is StartAt.ERROR:
                    raise error_of(
                        Code.OFFSET_OUT_OF_RANGE,
                        f"{place[0]}/{place[1]}: no committed offset, and start_at is ERROR",
                    )
                bound = bounds[place]
                offsets[place] = bound.minimum if policy is StartAt.FIRST else bound.maximum
        return {place: offsets[place] for place in starts}

    async def seek(self, offsets: Mapping[Place, Start]) -> None:
        """Continue assigned queues at other offsets."""
        self.check_open()
        for place in offsets:
            self.core.read(place)
        found = await self._offsets_of(dict(offsets))
        for place, offset in found.items():
            self.core.seek(place, offset)
        if self.polling is not None:
            self.polling.seek(found)
        self._advance()

    async def seek_to_time(self, places: Sequence[Place], time_ms: int) -> None:
        """Continue assigned queues at the first record stored at or after a time."""
        found = await asyncio.gather(
            *(self.queries.offset_by_time(place, time_ms) for place in places)
        )
        await self.seek(dict(zip(places, found, strict=True)))

    async def set_paused(self, places: Sequence[Place], *, paused: bool) -> None:
        """Pause or resume assigned queues."""
        self.check_open()
        for place in places:
            if paused:
                self.core.pause(place)
            else:
                self.core.resume(place)
        self._advance()

    def deadline(self, timeout: float | None) -> float | None:
        """Begin a poll: return when a wait of so many seconds ends; None: never."""
        self.check_open()
        self._before = []
        return None if timeout is None else self.driver.now() + timeout

    async def poll(self, max_records: int, until: float | None) -> list[RecordBatch]:
        """Return what has arrived, waiting for the first until `until`; may be empty.

        Also empty as soon as a subscription has something to tell.
        """
        self.check_open()
        if self.polling is None and not self.core.places():
            raise invalid("poll: no queue is assigned, call assign or subscribe first")
        self._before = [(read, read.position) for read in self.core.buffer.reads.values()]
        taken = self._take(max_records)
        if taken or self.has_changes or (until is not None and until <= self.driver.now()):
            return taken
        try:
            async with asyncio.timeout_at(until):
                while not taken and not self.has_changes:
                    self._news.clear()
                    await self._news.wait()
                    self.check_open()
                    taken = self._take(max_records)
        except TimeoutError:
            return []
        return taken

    async def undo_poll(self) -> None:
        """Take back what the last poll took: it was interrupted, and nobody got its records."""
        before, self._before = self._before, []
        for read, position in before:
            if self.polling is not None:
                self.polling.undo(read.place, position)
            if self.core.buffer.reads.get(read.place) is read and read.position > position:
                self.core.seek(read.place, position)
        self._advance()

    @property
    def has_changes(self) -> bool:
        """True: a subscription has something to tell."""
        return self.polling is not None and self.polling.has_changes

    def _take(self, max_records: int) -> list[RecordBatch]:
        if self.polling is None:
            return self.take(max_records)
        self.polling.hold_back(self.driver.now())
        return self.polling.cut(self.take(max_records))

    def take(self, max_records: int) -> list[RecordBatch]:
        """Return what has arrived, without waiting; ClientError of a queue that cannot be read."""
        taken = self.core.buffer.take(max_records)
        self.driver.carry_out()
        self._room.set()
        return taken

    def carry_out(self) -> None:
        """Open and close streams after a change of what is fetched."""
        self.core.pump(self.driver.now())
        self.driver.carry_out()
        self.driver.arm()

    # After every input of the core.

    def _advance(self) -> None:
        self.core.pump(self.driver.now())
        self.driver.advance()

    def _settle(self) -> None:
        """Wake who waits for records, and who waits to read on."""
        if self.core.buffer.has_news:
            self._news.set()
        self._room.set()
        if self.on_settled is not None:
            self.on_settled()

    def _carry_out(self, action: fetch.Action) -> None:
        match action:
            case fetch.OpenFetch():
                name = f"dledger fetch {action.group}@{action.address}"
                self.driver.open_stream(action.stream, self._run(action), name)
            case fetch.CloseFetch(stream):
                self.driver.close_stream(stream)
            case fetch.FindOffset(place, offset, detail):
                self.driver.spawn(self._find(place, offset, detail))
            case RefreshRoutes():
                self.cluster.refresh()
            case fetch.TellUnreadable(what, gone):
                self.passed_over[what.topic, what.queue] += what.records
                _LOG.warning("passed over: %s", what.describe())
                self._tell_empty((what.topic, what.queue), what.start - gone, what.end)

    def _tell_empty(self, place: Place, first: int, end: int) -> None:
        if self.on_empty is not None and first < end:
            self.on_empty(place, first, end)

    # Streams.

    async def _run(self, action: fetch.OpenFetch) -> None:
        request = pb.FetchRequest(
            assignments=[
                pb.FetchRequest.Assignment(
                    queue=pb.QueueRef(topic_id=wanted.topic_id, queue=wanted.place[1]),
                    offset=wanted.offset,
                )
                for wanted in action.wanted
            ],
            max_bytes=self.config.frame_bytes,
            wait_ms=self.config.wait_ms,
            with_origins=True,
        )
        try:
            channel, metadata = await self.cluster.channels.ready(action.address, action.group)
            call = raw_read(channel, FETCH)(request.SerializeToString(), metadata=metadata)
            try:
                await self._read(action.stream, partial(read_frame, call))
            except grpc.aio.AioRpcError as broken:
                fail = self.cluster.channels.failure
                raise fail(channel, broken, metadata, write=False) from None
            finally:
                call.cancel()
            error = error_of(Code.UNAVAILABLE, f"{action.address}: the member ended the stream")
        except TimeoutError:
            error = error_of(Code.UNAVAILABLE, f"{action.address}: silent for too long")
        except (grpc.aio.AioRpcError, DledgerError) as broken:
            error = failure(broken, write=False)
        _LOG.debug("fetch %s@%s: %s", action.group, action.address, error)
        self.core.stream_down(action.stream, error, self.driver.now())
        self._advance()

    async def _read(
        self, stream: int, read: Callable[[], Coroutine[object, object, bytes | None]]
    ) -> None:
        silence = SILENCE_WAITS * self.config.wait_ms / 1_000 + SILENCE_GRACE
        while True:
            while not self.core.wants_more(stream):
                self._room.clear()
                await self._room.wait()
            async with asyncio.timeout(silence):
                message = await read()
            if message is None:
                return
            for frame in parse_fetches(message):
                self.core.frame(stream, frame, self.driver.now())
                del frame
            del message  # or it stays in memory until the next one comes
            self._advance()

    async def _find(self, place: Place, offset: int, detail: str) -> None:
        """Find where a queue continues whose offset is out of range (S104)."""
        policy = self.config.start_at
        read = self.core.buffer.reads.get(place)
        try:
            if policy is StartAt.ERROR:
                raise error_of(Code.OFFSET_OUT_OF_RANGE, f"{place[0]}/{place[1]}: {detail}")
            bound = (await self.queries.bounds([place]))[place]
        except ClientError as error:
            self.core.fail(place, error)
        else:
            found = bound.minimum if policy is StartAt.FIRST else bound.maximum
            if offset < bound.minimum:
                found = bound.minimum  # the head was trimmed under us: nothing that exists is lost
            elif offset <= bound.maximum:
                found = offset  # the member that refused it is behind
                await asyncio.sleep(BEHIND_SECONDS)
            _LOG.warning("%s/%d: %s; reading continues at offset %d", *place, detail, found)
            is_same = read is not None and self.core.buffer.reads.get(place) is read
            if read is not None and is_same and read.is_lost and read.fetch_at == offset:
                if found != offset:  # else the next run tells of what is compacted before it
                    first = offset - read.gone
                    self._tell_empty(place, first, max(offset, min(found, bound.minimum)))
                self.core.continue_at(place, found)
        self._advance()


def _check_number(queues: Counter[str]) -> None:
    for group, count in queues.items():
        if count > FETCH_ASSIGNMENTS_MAX:
            raise invalid(
                f"assign: {count} queues of group {group}, at most {FETCH_ASSIGNMENTS_MAX} for one"
                " consumer; share them among several"
            )
