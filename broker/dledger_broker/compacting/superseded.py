"""Which records of a compacted queue stay. Pure.

Owns: what the key of a record is, the newest offset of each key, tombstones, what is left of a
batch. Not owned: reading, stretches and their order (`compacting`), what apply checks
(`dledger.state.queues.compact`).

A pass notes the newest offset of each key in what is new. Then it goes over the queue from its
minimum. A record goes when the same key has a newer one. A tombstone goes, too, when it is old,
unless an older record of its key was left: in a row that something refers to and that stays whole,
or among those that nobody compares, which have several keys or were brought by a timer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Final, NamedTuple

from dledger.state.queues.carry import Copy
from dledger.state.values import QueueSpan
from dledger_proto.batch.codec import BatchView, cut_records
from dledger_proto.errors import DledgerError
from dledger_proto.limits import OFFSET_MAX

KEYS_MAX: Final = 262_144
"""Keys that one pass compares: some 40 MB. It ends where a further batch could exceed them."""
KEY_DIGEST_SIZE: Final = 16


class Run(NamedTuple):
    """Records of a batch that stay: `record_count` from `first` on."""

    first: int
    record_count: int


class RowKeys(NamedTuple):
    """The keys of a row's records."""

    own: list[bytes | None]
    """A digest for each record; None for one that has no key, or several. Empty: nobody compares
    the records of this row, because a timer brought them or because they cannot be decoded."""
    others: set[bytes]
    """Digests of keys whose records nobody compares."""


@dataclass(slots=True)
class Comparison:
    """What one pass knows of keys."""

    tombstones_until_ms: int
    """A tombstone that was stored by then may go."""
    newest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The newest offset of each key among the records that are new."""
    stuck: set[bytes] = field(default_factory=set[bytes])
    """Keys of older records that were left: their tombstones stay, too."""
    cleaned: int = OFFSET_MAX
    """The first offset that supersedes a record that was left; OFFSET_MAX: none was."""

    def _keep_tombstones_of(self, keys: set[bytes]) -> None:
        """Older records of these keys stay. With too many of them all tombstones stay."""
        self.stuck |= keys
        if len(self.stuck) > KEYS_MAX:
            self.stuck.clear()
            self.tombstones_until_ms = -1

    def note(self, span: QueueSpan, batch: memoryview) -> bool:
        """Note the keys of a new row; False, and nothing noted: there is no room for them."""
        keys = keys_of(span, batch).own
        if len(self.newest) + len(keys) > KEYS_MAX and self.newest:
            return False
        for record, key in enumerate(keys):
            if key is not None:
                self.newest[key] = span.base_offset + record
        return True

    def leave(self, span: QueueSpan, keys: RowKeys, minimum: int) -> None:
        """Note what of a row should go, and stays because the row must stay whole."""
        for offset, key in enumerate(keys.own, span.base_offset):
            newest = offset if key is None else self.newest.get(key, offset)
            if key is not None and minimum <= offset < newest:
                self._keep_tombstones_of({key})
                self.cleaned = min(self.cleaned, newest)

    def left_of(
        self, span: QueueSpan, view: BatchView, keys: RowKeys, minimum: int
    ) -> list[Run] | None:
        """Return the runs of a row that stay; None: all of it does. Rows come in their order."""
        if keys.others:
            self._keep_tombstones_of(keys.others)
        if not keys.own:
            return None
        may_drop_tombstones = span.store_time_ms <= self.tombstones_until_ms
        sizes = view.body_sizes if may_drop_tombstones else ()
        stays: list[bool] = []
        for record, key in enumerate(keys.own):
            offset = span.base_offset + record
            is_last = key is None or self.newest.get(key, offset) <= offset
            is_over = may_drop_tombstones and key is not None and not sizes[record]
            stays.append(offset >= minimum and is_last and not (is_over and key not in self.stuck))
        return None if all(stays) else list(_runs(stays))


def keys_of(span: QueueSpan, batch: memoryview) -> RowKeys:
    """Return the keys of a row, from the bytes of its whole batch."""
    own: list[bytes | None] = []
    others: set[bytes] = set()
    if span.is_gone:
        return RowKeys(own, others)
    view = BatchView(batch)
    try:
        for record in range(span.first_record, span.first_record + span.record_count):
            keys = [blake2b(key.encode(), digest_size=KEY_DIGEST_SIZE).digest()
                    for key in view.keys(record)]  # fmt: skip
            is_compared = len(keys) == 1 and not span.is_reference
            own.append(keys[0] if is_compared else None)
            if not is_compared:
                others.update(keys)
    except DledgerError:
        return RowKeys([], others)
    return RowKeys([] if span.is_reference else own, others)


def _runs(stays: list[bool]) -> Iterator[Run]:
    at = 0
    for is_left, group in groupby(stays):
        count = sum(1 for _ in group)
        if is_left:
            yield Run(at, count)
        at += count


def cut(span: QueueSpan, view: BatchView, runs: Sequence[Run]) -> list[Copy] | None:
    """Return the runs of a row as batches; None when they would be as large as all of it.

    Such a row stays whole until more of it is superseded. So a command is never much larger than a
    batch, whatever the batch holds. A batch whose bodies cannot be decompressed cannot be cut: it
    stays whole, too.
    """
    copies: list[Copy] = []
    size = 0
    for run in runs:
        try:
            batch = cut_records(view, run.first, run.record_count)
        except DledgerError:
            return None
        size += len(batch)
        if size >= span.size:
            return None
        copies.append(Copy(span.position + run.first, batch))
    return copies
