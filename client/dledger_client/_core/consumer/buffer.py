"""What a consumer has fetched and not handed out yet. Pure.

Owns: the assigned queues, the bound on the memory of their buffers, the fair round over queues,
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
        self.buffered_bytes = 0
        """As `RecordBatch.memory` counts: with bodies as large as they are decompressed."""
        self._bytes_max = bytes_max
        self._fail_on_unreadable = fail_on_unreadable
        self._round: deque[Place] = deque()
        self._passed_over: list[Unreadable] = []

    def add(self, read: QueueRead) -> None:
        """Take in a queue that was assigned."""
        self.reads[read.place] = read
        self._round.append(read.place)

    def remove(self, place: Place) -> QueueRead | None:
        """Drop a queue and what is buffered of it; return it, None if it was not assigned."""
        read = self.reads.pop(place, None)
        if read is not None:
            self.drop(read)
            self._round.remove(place)
        return read

    def append(self, read: QueueRead, run: RecordBatch) -> None:
        """Buffer the newest run of a queue."""
        self.buffered_bytes += read.buffer.append(run)

    def drop(self, read: QueueRead) -> None:
        """Drop everything that is buffered of a queue."""
        while read.buffer:
            self.buffered_bytes -= read.buffer.drop_first()

    def take(self, max_records: int) -> list[RecordBatch]:
        """Return up to `max_records` records, queues in turn; if there are none, raise an error.

        No more than the buffer's bound in memory, but at least one run. Records that were buffered
        before an error are handed out first.
        """
        taken: list[RecordBatch] = []
        left, room = max_records, self._bytes_max
        for _ in range(len(self._round)):
            if left <= 0 or room <= 0:
                break
            self._round.rotate(-1)
            read = self.reads[self._round[-1]]
            if read.is_silent:
                continue
            while (run := self._next_run(read)) is not None and left > 0:
                if taken and run.memory > room:
                    self._round.rotate(1)  # its turn comes first the next time, whatever its size
                    room = 0
                    break
                room -= run.memory
                if run.count > left:
                    run, read.buffer.runs[0] = run.split(left)
                else:
                    self.buffered_bytes -= read.buffer.drop_first()
                taken.append(run)
                left -= run.count
                read.position = run.next_offset
        if not taken:
            for read in self.reads.values():
                if read.error is not None and not read.is_silent:
                    raise read.error.again()
        return taken

    def _next_run(self, read: QueueRead) -> RecordBatch | None:
        """Return the next run of a queue; leave out runs that cannot be decoded, if that may be."""
        while read.buffer:
            run = read.buffer.runs[0]
            problem = None if self._fail_on_unreadable else run.view.problem
            if problem is None or problem.code is not Code.UNREADABLE_BATCH:
                return run
            self._passed_over.append(run.place_of(problem))
            self.buffered_bytes -= read.buffer.drop_first()
            read.position = run.next_offset
        return None

    def take_passed_over(self) -> list[Unreadable]:
        """Return what was passed over since the last call."""
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
    def wants_more(self) -> bool:
        """False: the buffer is full, and no stream may be read on."""
        return self.buffered_bytes < self._bytes_max
