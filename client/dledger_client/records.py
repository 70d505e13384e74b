"""Records as a consumer gets them: a view of the batch that the producer framed.

Owns: the value types. A value unpacks nothing before somebody reads it: reading `body` copies the
body out of its batch. A caller may take whole batches too: columns for numpy, one CRC, no copy.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from dledger_client.errors import ClientError, error_of
from dledger_client.unreadable import CONSUMER_REMEDY, Unreadable
from dledger_proto.batch.codec import BatchView, Record
from dledger_proto.batch.properties import KEY_SEPARATOR, KEYS_NAME, ORDERING_KEY_NAME
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import RowOrigin


@dataclass(slots=True, eq=False, repr=False)
class RecordBatch:
    """A run of records of one queue, consecutive, from one batch of a producer."""

    topic: str
    queue: int
    base_offset: int
    """Offset of the first record of this run."""
    view: BatchView
    """The whole batch, checked; this run is `count` records from `first_record` on."""
    first_record: int
    count: int
    store_time_ms: int
    """The leader's stamp, milliseconds since 1970."""
    group: str = ""
    """The broker group that the run was read from; empty: not known."""
    origin: RowOrigin | None = None
    """Of which record this run is, delivered again; None: it came from its producer."""
    gone_before: int = 0
    """So many offsets right before `base_offset` hold nothing any more: their records were
    compacted. 0: none, or none that this run tells of."""

    @property
    def memory(self) -> int:
        """Bytes that this run keeps in memory: of the whole batch, and of its bodies decompressed.

        This holds before decompression too: each batch declares the size of its bodies.
        """
        header = self.view.header
        return header.size + (header.bodies_size if header.compression else 0)

    @property
    def next_offset(self) -> int:
        """The offset behind this run."""
        return self.base_offset + self.count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator["ConsumedRecord"]:
        for place in range(self.count):
            yield ConsumedRecord(self, place)

    def __getitem__(self, place: int) -> "ConsumedRecord":
        if not 0 <= place < self.count:
            raise IndexError(f"record {place} of {self.count}")
        return ConsumedRecord(self, place)

    def records(self) -> list[Record]:
        """Return body, tag, keys, properties and time of all records of this run."""
        with self._named():
            return list(self.view.records(self.first_record, self.count))

    def bodies(self) -> list[bytes]:
        """Return all bodies."""
        view = self.view
        end = self.first_record + self.count
        with self._named():
            return [bytes(view.body(i)) for i in range(self.first_record, end)]

    def place_of(self, error: DledgerError) -> Unreadable:
        """Return the offsets of this run with the problem of its batch."""
        return Unreadable(
            self.group, self.topic, self.queue, self.base_offset, self.next_offset, error.detail
        )

    @contextmanager
    def _named(self) -> Generator[None]:
        """Add the place to an error when the bodies of a batch cannot be decompressed."""
        try:
            yield
        except DledgerError as error:
            raise self.broken(error) from error

    def broken(self, error: DledgerError) -> ClientError:
        """Return the error with the place: a reader may continue at `next_offset`."""
        if error.code is Code.UNREADABLE_BATCH:
            return error_of(error.code, f"{self.place_of(error).describe()}; {CONSUMER_REMEDY}")
        place = f"{self.topic}/{self.queue} offsets {self.base_offset} to {self.next_offset - 1}"
        return error_of(error.code, f"{place}: {error.detail}")

    def part(self, first: int, end: int) -> "RecordBatch":
        """Return the records at the offsets `first` to `end` - 1."""
        if first == self.base_offset and end == self.next_offset:
            return self
        skip = first - self.base_offset
        assert 0 <= skip < end - self.base_offset <= self.count, f"{first} to {end} of {self!r}"
        return replace(
            self,
            base_offset=first,
            first_record=self.first_record + skip,
            count=end - first,
            gone_before=0 if skip else self.gone_before,
        )

    def split(self, count: int) -> tuple["RecordBatch", "RecordBatch"]:
        """Return the first `count` records, and the rest."""
        assert 0 < count < self.count, f"{count} of {self.count}"
        return (
            RecordBatch(
                self.topic, self.queue, self.base_offset, self.view, self.first_record, count,
                self.store_time_ms, self.group, self.origin, self.gone_before,
            ),
            RecordBatch(
                self.topic, self.queue, self.base_offset + count, self.view,
                self.first_record + count, self.count - count, self.store_time_ms, self.group,
                self.origin,
            ),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<RecordBatch {self.topic}/{self.queue} {self.base_offset}..{self.next_offset - 1}>"


class ConsumedRecord:
    """One record. Equal to nothing but itself; compare `topic`, `queue`, `offset`."""

    __slots__ = ("__dict__", "_batch", "_place")

    def __init__(self, batch: RecordBatch, place: int) -> None:
        self._batch = batch
        self._place = place

    @property
    def _at(self) -> int:
        return self._batch.first_record + self._place

    @property
    def topic(self) -> str:
        """Name of its topic."""
        return self._batch.topic

    @property
    def queue(self) -> int:
        """Number of its queue."""
        return self._batch.queue

    @property
    def offset(self) -> int:
        """Its place in the queue."""
        return self._batch.base_offset + self._place

    @property
    def body(self) -> bytes:
        """What was sent, as a copy."""
        try:
            return bytes(self._batch.view.body(self._at))
        except DledgerError as error:
            raise self._batch.broken(error) from error

    @cached_property
    def _record(self) -> Record:
        try:
            return self._batch.view.record(self._at)
        except DledgerError as error:
            raise self._batch.broken(error) from error

    @property
    def tag(self) -> str:
        """Its tag; empty: none."""
        return self._record.tag

    @property
    def keys(self) -> Sequence[str]:
        """Its keys."""
        return self._record.keys

    @property
    def ordering_key(self) -> str:
        """By which its producer kept it in order; empty: it gave none, or did not store it."""
        return self._record.properties.get(ORDERING_KEY_NAME, "")

    @property
    def order_by(self) -> str:
        """What order per key goes by: the ordering key, else the first of its keys; empty: none.

        The body is not looked at: it may be one that cannot be decompressed here.
        """
        try:
            properties = self._batch.view.properties(self._at)
        except DledgerError as error:
            raise self._batch.broken(error) from error
        ordering_key = properties.get(ORDERING_KEY_NAME)
        if ordering_key is not None:
            return ordering_key
        return properties.get(KEYS_NAME, "").split(KEY_SEPARATOR, 1)[0]

    @property
    def properties(self) -> dict[str, str]:
        """Its other properties."""
        others = dict(self._record.properties)
        others.pop(ORDERING_KEY_NAME, None)
        return others

    @property
    def time_ms(self) -> int:
        """When the producer made it, milliseconds since 1970."""
        return self._batch.view.times[self._at]

    @property
    def store_time_ms(self) -> int:
        """When the leader took it, milliseconds since 1970; never goes back within a queue."""
        return self._batch.store_time_ms

    @property
    def message_id(self) -> bytes:
        """24 bytes: producer id, running number. Of a producer without id the first 16 are zero."""
        return self._batch.view.message_id(self._at)

    @property
    def origin(self) -> RowOrigin | None:
        """Of which record it is, when it is delivered again; None: it came from its producer."""
        return self._batch.origin

    @property
    def attempts(self) -> int:
        """How often it failed before this delivery."""
        origin = self._batch.origin
        return 0 if origin is None else origin.attempts

    def __repr__(self) -> str:
        return f"<ConsumedRecord {self.topic}/{self.queue}@{self.offset}>"
