"""Which records of a compacted queue stay. Pure.

Owns: what the key of a record is, the newest offset of each key, tombstones, what is left of a
batch. Not owned: reading, stretches and their order (`compacting`), what apply checks
(`dledger.state.queues.compact`).

A pass notes the newest offset of each key in what is new. Then it goes over the queue from its
minimum. A record goes when the same key has a newer one. A tombstone goes, too, when it is old,
unless an older record of its key was left: a row that something refers to stays whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Final, NamedTuple

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


@dataclass(slots=True)
class Comparison:
    """What one pass knows of keys."""

    tombstones_until_ms: int
    """A tombstone that was stored by then may go."""
    newest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The newest offset of each key among the records that are new."""
    stuck: set[bytes] = field(default_factory=set[bytes])
    """Keys of superseded records that were left."""
    cleaned: int = OFFSET_MAX
    """The first offset that supersedes a record that was left; OFFSET_MAX: none was."""

    def note(self, span: QueueSpan, batch: memoryview) -> bool:
        """Note the keys of a new row; False, and nothing noted: there is no room for them."""
        keys = keys_of(span, batch)
        if len(self.newest) + len(keys) > KEYS_MAX and self.newest:
            return False
        for record, key in enumerate(keys):
            if key is not None:
                self.newest[key] = span.base_offset + record
        return True

    def leave(self, span: QueueSpan, batch: memoryview, minimum: int) -> None:
        """Note what of a row should go, and stays because the row must stay whole."""
        for offset, key in enumerate(keys_of(span, batch), span.base_offset):
            newest = offset if key is None else self.newest.get(key, offset)
            if key is not None and minimum <= offset < newest:
                self.stuck.add(key)
                self.cleaned = min(self.cleaned, newest)

    def left_of(self, span: QueueSpan, batch: memoryview, minimum: int) -> list[Run] | None:
        """Return the runs of a row that stay; None: all of it does. A row of a whole batch."""
        keys = keys_of(span, batch)
        if not keys:
            return None
        may_drop_tombstones = span.store_time_ms <= self.tombstones_until_ms
        sizes = BatchView(batch).body_sizes if may_drop_tombstones else ()
        stays: list[bool] = []
        for record, key in enumerate(keys):
            offset = span.base_offset + record
            is_last = key is None or self.newest.get(key, offset) <= offset
            is_over = may_drop_tombstones and key is not None and not sizes[record]
            stays.append(offset >= minimum and is_last and not (is_over and key not in self.stuck))
        return None if all(stays) else list(_runs(stays))


def keys_of(span: QueueSpan, batch: memoryview) -> list[bytes | None]:
    """Return a digest of each record's key; None for one that has no key, or several.

    Empty for rows whose records nobody compares: what a timer brought, what cannot be decoded.
    """
    if span.is_reference or span.is_gone:
        return []
    view = BatchView(batch)
    try:
        return [_key(view, record) for record in range(span.record_count)]
    except DledgerError:
        return []


def _key(view: BatchView, record: int) -> bytes | None:
    keys = view.keys(record)
    if len(keys) != 1:
        return None
    return blake2b(keys[0].encode(), digest_size=KEY_DIGEST_SIZE).digest()


def _runs(stays: list[bool]) -> Iterator[Run]:
    at = 0
    for is_left, group in groupby(stays):
        count = sum(1 for _ in group)
        if is_left:
            yield Run(at, count)
        at += count


def cut(batch: memoryview, run: Run) -> bytes:
    """Return the records of a run as a batch."""
    return cut_records(BatchView(batch), run.first, run.record_count)
