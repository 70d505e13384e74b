# Generated from consumer_async.py by client/generate_sync.py. Change that file, not this one.
"""The consumer.

Owns: what a user calls. Everything else is behind `ConsumerEngine`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Self, cast

from dledger_client._core.arguments import check_integer, checked_timeout
from dledger_client._core.consumer.state import Place
from dledger_client._shell.consumer import ConsumerEngine, Start
from dledger_client._shell.group.membership import subscriptions_of
from dledger_client._shell.group.polling import Listener
from dledger_client._shell.runner import SyncRunner
from dledger_client._shell.wire import parse_addresses
from dledger_client.config import ConsumerConfig
from dledger_client.errors import invalid
from dledger_client.model import QueueBounds
from dledger_client.records import ConsumedRecord, RecordBatch

RECORDS_MAX = 1_000_000
"""Of one poll."""
ITERATION_RECORDS = 1_000
"""Records that an iteration takes from the buffer at once."""


class Consumer:
    """Reads queues from chosen offsets on; commits offsets for a consumer group if it has one.

    ```
    with Consumer("127.0.0.1:9876", ConsumerConfig(group="billing")) as consumer:
        consumer.assign("orders")
        for record in consumer:
            print(record.offset, record.body)
            consumer.commit()
    ```

    `bootstrap` names name servers or members, "host:port", several with commas or as a list. After
    any break reading continues at the exact next offset. Every batch's checksum is checked. Not
    more than `ConsumerConfig.buffer_bytes` are fetched ahead.

    The consumer hands out a batch that nobody can decode like any other. Reading its records raises
    UnreadableData, which names the offsets; the next poll continues behind them. With
    `ConsumerConfig.fail_on_unreadable` off the consumer leaves such batches out.
    """

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConsumerConfig | None = None
    ) -> None:
        self._config = config or ConsumerConfig()
        self._engine = ConsumerEngine(parse_addresses(bootstrap), self._config)
        self._runner = SyncRunner()
        self._iterated: list[ConsumedRecord] = []
        self._on_assigned: Listener | None = None
        self._on_revoked: Listener | None = None

    def start(self) -> Self:
        """Connect, in the background; `with` does it. Returns itself."""
        self._runner.run(self._engine.start())
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # What failed on its way through the user's code is not done.
        self._runner.run(self._engine.close(is_done=kind is None and not self._iterated))

    def close(self) -> None:
        """End. A subscription takes what was polled for done, commits by itself, and leaves.

        It commits nothing when `ConsumerConfig.commit_interval_ms` is 0. The last poll is not taken
        for done when an exception leaves the `with` block. Catch KeyboardInterrupt outside of
        the block, not within.
        """
        self._runner.run(self._engine.close(is_done=not self._iterated))

    # What is read.

    def assign(
        self,
        what: str | Iterable[str | Place] | Mapping[Place, Start | None],
        start: Start | None = None,
    ) -> None:
        """Read exactly these queues from now on.

        `what`: a topic (all its queues), several topics or (topic, queue) pairs, or a mapping from
        pairs to where each begins. A beginning is an offset, StartAt.FIRST, StartAt.LAST, or None:
        the committed offset, else by `ConsumerConfig.start_at`. `start` is that of everything
        without its own. Of a topic that is given by its name alone, queues that are added later are
        read, too, from their beginning. Nothing is shared with other consumers of the group: each
        that assigns a queue gets all of it. `subscribe` shares.
        """
        whole = (
            [what] if isinstance(what, str) else [each for each in what if isinstance(each, str)]
        )
        starts = self._starts(what, start)
        self._runner.run(self._engine.assign(starts, whole))
        self._iterated.clear()

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        patterns: str | Iterable[str] = (),
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        """Share topics with the other consumers of the group; `poll` returns this one's part.

        `patterns` are regular expressions that whole names of topics must match, also of topics
        that are created later. The records that the group retries come, too: see `record.origin`.
        `on_assigned` and `on_revoked` get lists of (topic, queue) pairs. They are called by `poll`;
        `on_revoked` may still commit. Queues that are added later are shared out, too.
        """
        subscriptions = subscriptions_of(topics, patterns)
        self._group()
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._runner.run(self._engine.subscribe(subscriptions))

    def _tell_changes(self) -> None:
        """Tell the user which queues came and went; then let go of those that went."""
        polling = self._engine.polling
        if polling is None:
            return
        polling.check()
        revoked = polling.take_revoked()
        if revoked:
            try:
                if self._on_revoked is not None:
                    self._runner.call(self._on_revoked, revoked)
            finally:
                self._iterated = [
                    each for each in self._iterated if (each.topic, each.queue) not in revoked
                ]
                self._runner.run(self._engine.let_go())
        assigned = polling.take_assigned()
        if assigned and self._on_assigned is not None:
            self._runner.call(self._on_assigned, assigned)

    def _starts(
        self, what: str | Iterable[str | Place] | Mapping[Place, Start | None], start: Start | None
    ) -> dict[Place, Start | None]:
        if isinstance(what, Mapping):
            given = cast("Mapping[Place, Start | None]", what)
            return {place: start if own is None else own for place, own in given.items()}
        starts: dict[Place, Start | None] = {}
        for each in [what] if isinstance(what, str) else what:
            if isinstance(each, str):
                for place in self._places(each):
                    starts[place] = start
            else:
                starts[each] = start
        return starts

    def _places(self, topic: str) -> list[Place]:
        return self._runner.run(self._engine.queries.places(topic))

    def assignment(self) -> list[Place]:
        """Return the (topic, queue) pairs that are read."""
        return self._engine.core.places()

    def seek(self, topic: str, queue: int, offset: Start) -> None:
        """Continue an assigned queue at another offset; its fetched records are dropped."""
        self._runner.run(self._engine.seek({(topic, queue): offset}))
        self._forget(topic, queue)

    def seek_to_time(self, topic: str, time_ms: int, queue: int | None = None) -> None:
        """Continue at the first record stored at or after a time (of a queue, or of all)."""
        places = self._assigned(topic, queue)
        self._runner.run(self._engine.seek_to_time(places, time_ms))
        for place in places:
            self._forget(*place)

    def pause(self, topic: str, queue: int | None = None) -> None:
        """Hand out nothing of a queue, or of all of the topic, until `resume`; positions stay."""
        self._runner.run(self._engine.set_paused(self._assigned(topic, queue), paused=True))

    def resume(self, topic: str, queue: int | None = None) -> None:
        """Undo `pause`."""
        self._runner.run(self._engine.set_paused(self._assigned(topic, queue), paused=False))

    def _assigned(self, topic: str, queue: int | None) -> list[Place]:
        if queue is not None:
            return [(topic, queue)]
        return [place for place in self.assignment() if place[0] == topic]

    # Reading.

    def poll(
        self, max_records: int = 500, timeout_ms: float | None = 1_000
    ) -> list[ConsumedRecord]:
        """Return up to `max_records` records as soon as there are any, else [] after `timeout_ms`.

        `timeout_ms` None waits for good, 0 not at all. Raises InvalidRequest when no queue is
        assigned. Raises the error of a queue that cannot be read: TopicNotFound, NoPermission,
        OffsetOutOfRange (with StartAt.ERROR), CorruptData. It does so on each call on which the
        other queues have nothing, until the queue is paused, sought or let go.
        """
        batches = self.poll_batches(max_records, timeout_ms)
        try:
            return [record for batch in batches for record in batch]
        except Exception:
            raise
        except BaseException:  # interrupted: the user does not get what was taken
            self._runner.run(self._engine.undo_poll())
            raise

    def poll_batches(
        self, max_records: int = 10_000, timeout_ms: float | None = 1_000
    ) -> list[RecordBatch]:
        """Return records as runs of producers' batches, without unpacking them; else as `poll`."""
        check_integer("max_records", max_records, RECORDS_MAX, 1)
        timeout = None if timeout_ms is None else checked_timeout(timeout_ms)
        until = self._engine.deadline(timeout)
        if self._engine.polling is not None and not self._iterated:
            self._runner.run(self._engine.done_with_poll())
        while True:
            self._tell_changes()
            try:
                taken = self._runner.run(self._engine.poll(max_records, until))
            except Exception:
                raise
            except BaseException:  # interrupted
                self._runner.run(self._engine.undo_poll())
                raise
            if taken or not self._engine.has_changes:
                return taken

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self

    def __next__(self) -> ConsumedRecord:
        """Return the next record, waiting for good."""
        while not self._iterated:
            self._iterated = self.poll(ITERATION_RECORDS, None)
            self._iterated.reverse()
        return self._iterated.pop()

    def _forget(self, topic: str, queue: int) -> None:
        self._iterated = [
            record for record in self._iterated if (record.topic, record.queue) != (topic, queue)
        ]

    def position(self, topic: str, queue: int) -> int:
        """Return the offset of the next record to be handed out."""
        waiting = [
            record.offset
            for record in self._iterated
            if (record.topic, record.queue) == (topic, queue)
        ]
        return min(waiting, default=self._engine.core.read((topic, queue)).position)

    def passed_over(self) -> dict[Place, int]:
        """Return how many records could not be decoded and were left out, by queue."""
        return dict(self._engine.passed_over)

    # Offsets.

    def offsets(self, topic: str) -> dict[int, QueueBounds]:
        """Return minimum and maximum of each queue, confirmed by a quorum."""
        places = self._places(topic)
        bounds = self._runner.run(self._engine.queries.bounds(places))
        return {queue: bounds[topic, queue] for _, queue in places}

    def offset_by_time(self, topic: str, queue: int, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum if there is none."""
        return self._runner.run(self._engine.queries.offset_by_time((topic, queue), time_ms))

    def commit(
        self, offsets: Mapping[Place, int] | None = None, *, reset: bool = False, metadata: str = ""
    ) -> None:
        """Store offsets, the next to consume, for the consumer group; default: all positions.

        Raises OffsetBehind for one below what is stored, unless `reset`; the others are stored.
        After `subscribe`: ConsumerFenced for a queue that the group has given to somebody else,
        OffsetWasReset for one whose offset was reset since its records were read.
        """
        polling = self._engine.polling
        if offsets is None:
            offsets = self._positions()
        if polling is not None and not reset:
            self._runner.run(polling.commit(offsets))
            return
        self._runner.run(
            self._engine.queries.commit(self._group(), offsets, reset=reset, metadata=metadata)
        )
        if polling is not None:
            self._runner.run(self._engine.claim_again(list(offsets)))

    def _positions(self) -> dict[Place, int]:
        """Return the offset of the next record to be handed out of each queue."""
        polling = self._engine.polling
        if polling is None:
            return {place: self.position(*place) for place in self.assignment()}
        positions = polling.positions()
        for record in self._iterated:
            place = record.topic, record.queue
            if place in positions:
                positions[place] = min(positions[place], record.offset)
        # What others did out of turn is done, too, and is not handed out.
        return {place: max(at, polling.done_below(place)) for place, at in positions.items()}

    def committed(self, topic: str) -> dict[int, int]:
        """Return the stored offsets of the consumer group by queue; a queue without is left out."""
        places = self._places(topic)
        found = self._runner.run(self._engine.queries.committed(self._group(), places))
        return {queue: offset for (_, queue), offset in found.items()}

    def _group(self) -> str:
        if not self._config.group:
            raise invalid("ConsumerConfig.group: empty, name a consumer group")
        return self._config.group
