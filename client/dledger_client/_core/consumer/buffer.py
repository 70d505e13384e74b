"""What a consumer has fetched and not handed out yet. Pure.

Owns: the assigned queues, the bound on the memory of their buffers, the fair round over the queues
of a priority (higher ones first, S48),
records that are passed over because nobody can decode them. Not: what is fetched (`core.py`).
"""

from collections import deque

from dledger_client._core.consumer.state import Place, QueueRead
from dledger_client.records import RecordBatch
from dledger_client.unreadable import Unreadable
from dledger_proto.errors import Code


class FetchBuffer:
    """The buffers of all queues that one consumer reads."""

    def __init__(self, bytes_max: int, *, fail_on_unreadable: bool) -> None:
        self.reads: dict[Place, QueueRead] = {}
        self._buffered: dict[int, int] = {}
        """Bytes by priority, as `RecordBatch.memory` counts: with decompressed bodies."""
        self._bytes_max = bytes_max
        self._fail_on_unreadable = fail_on_unreadable
        self._rounds: dict[int, deque[Place]] = {}
        """By priority, the highest first; none is empty."""
        self._passed_over: list[tuple[Unreadable, int]] = []
        """With the number of offsets right before each that are compacted."""

    def add(self, read: QueueRead) -> None:
        """Take in a queue that was assigned."""
        self.reads[read.place] = read
        places = self._rounds.get(read.priority)
        if places is None:
            self._rounds[read.priority] = deque((read.place,))
            self._rounds = dict(sorted(self._rounds.items(), reverse=True))
            self._buffered[read.priority] = 0
        else:
            places.append(read.place)

    def remove(self, place: Place) -> QueueRead | None:
        """Drop a queue and what is buffered of it; return it, None if it was not assigned."""
        read = self.reads.pop(place, None)
        if read is not None:
            self.drop(read)
            places = self._rounds[read.priority]
            places.remove(place)
            if not places:
                del self._rounds[read.priority], self._buffered[read.priority]
        return read

    def append(self, read: QueueRead, run: RecordBatch) -> None:
        """Buffer the newest run of a queue."""
        self._buffered[read.priority] += read.buffer.append(run)

    def drop(self, read: QueueRead) -> None:
        """Drop everything that is buffered of a queue."""
        while read.buffer:
            self._drop_first(read)

    def _drop_first(self, read: QueueRead) -> None:
        self._buffered[read.priority] -= read.buffer.drop_first()

    def take(self, max_records: int) -> list[RecordBatch]:
        """Return up to `max_records` records; if there are none, raise an error.

        Queues of a higher priority come first, those of one priority in turn. No more than the
        buffer's bound in memory, but at least one run. Records that were buffered before an error
        are handed out first.
        """
        taken: list[RecordBatch] = []
        left, room = max_records, self._bytes_max
        for places in self._rounds.values():
            left, room = self._take_in_turn(places, taken, left, room)
        if not taken:
            for read in self.reads.values():
                if read.error is not None and not read.is_silent:
                    raise read.error.again()
        return taken

    def _take_in_turn(
        self, places: deque[Place], taken: list[RecordBatch], left: int, room: int
    ) -> tuple[int, int]:
        """Move runs of some queues to `taken`; return how many records and bytes are left then."""
        for _ in range(len(places)):
            if left <= 0 or room <= 0:
                break
            places.rotate(-1)
            read = self.reads[places[-1]]
            if read.is_silent:
                continue
            while (run := self._next_run(read)) is not None and left > 0:
                if taken and run.memory > room:
                    places.rotate(1)  # its turn comes first the next time, whatever its size
                    room = 0
                    break
                room -= run.memory
                if run.count > left:
                    run, read.buffer.runs[0] = run.split(left)
                else:
                    self._drop_first(read)
                taken.append(run)
                left -= run.count
                read.position = run.next_offset
        return left, room

    def _next_run(self, read: QueueRead) -> RecordBatch | None:
        """Return the next run of a queue; leave out runs that cannot be decoded, if that may be."""
        while read.buffer:
            run = read.buffer.runs[0]
            problem = None if self._fail_on_unreadable else run.view.problem
            if problem is None or problem.code is not Code.UNREADABLE_BATCH:
                return run
            self._passed_over.append((run.place_of(problem), run.gone_before))
            self._drop_first(read)
            read.position = run.next_offset
        return None

    def take_passed_over(self) -> list[tuple[Unreadable, int]]:
        """Return what was passed over since the last call, and how much is compacted before it."""
        taken, self._passed_over = self._passed_over, []
        return taken

    @property
    def has_news(self) -> bool:
        """True: `take` would return or raise something."""
        return any(
            (read.buffer or read.error is not None) and not read.is_silent
            for read in self.reads.values()
        )

    @property
    def buffered_bytes(self) -> int:
        """How many bytes are buffered of all queues."""
        return sum(self._buffered.values())

    def wants_more(self, priority: int = 0) -> bool:
        """Return whether streams of a priority may be read on.

        What is buffered of lower priorities does not count: a backlog never keeps urgent records
        away. So each priority that the queues have adds up to the bound to the memory.
        """
        return self._from(priority) < self._bytes_max

    def _from(self, priority: int) -> int:
        """Return how many bytes are buffered of a priority and higher ones."""
        return sum(each for of, each in self._buffered.items() if of >= priority)

    def has_enough(self, read: QueueRead) -> bool:
        """Return whether a queue that is held back need not be fetched: others need the room.

        The buffer is half full, and the queue has at least half of its share of that.
        """
        buffered = self._from(read.priority)
        return (
            2 * buffered >= self._bytes_max and 2 * len(self.reads) * read.buffer.size >= buffered
        )

    def is_short_of(self, read: QueueRead) -> bool:
        """Return whether a queue that had enough is to be fetched again."""
        return not read.buffer or 4 * self._from(read.priority) < self._bytes_max
