"""The key index: from a key's hash to the batches that hold it (S52).

Owns: its tables, lookup, and merging. Not: reading batches (a hit's batch is compared with the key
itself, hashes collide), nor the hash (`dledger_proto.keyhash`).

    31 topic_id, 0, block u64                 -> level 0: one record for each batch, in log order:
         count u32, queue u32, store_time_ms i64, base_offset i64, position u64   little-endian
         count hashes, u64 little-endian: the batch's column key_hashes as it came
    31 topic_id, 1, run u64, entry 24         -> a block of a sorted run; the key ends in the first
         of its entries of 24 bytes:  hash u64, position u64, queue u16, base_offset u48  big-endian
    30 topic_id                               -> the directory (`runs.py`): level-0 blocks, runs,
                                                 merges under way

A log-structured merge tree for each topic. Level 0 takes LEVEL_0_ENTRIES hashes as they come,
because work for each hash would cost more than the rest of apply. Then level 0 becomes a sorted run
of level 1, in which a batch has an entry for each distinct hash. RUNS_PER_MERGE runs of a level
become one run of the next. With n hashes there are about log16(n / 8192) levels of fewer than 32
runs, and a lookup is one seek in each run: it never walks through batches. Entries of a hash are in
log order, so a lookup walks backwards to find the newest first.

Merging is part of apply, not of a background thread, and paced: each time MERGE_PACE hashes came
in, every merge moves on by about as many entries. So the merged rows are in the digest and equal on
all members, a crash in the middle of a merge needs no recovery of its own, and no apply merges more
than a bounded number of entries. A merge under way has a cursor: entries below it are in the run
that the merge writes, entries at or above it are still in the runs that it reads. Their blocks are
deleted as the cursor passes them.

A batch that waits for a timer has the base offset UNKNOWN_OFFSET, now and after it fired: table 74
(`queues/references.py`) says where its parts are.

A merge leaves out entries of batches that lie below their queue's minimum, or of which compaction
has left nothing; a run that lies wholly
below the topic's oldest needed position is dropped whole.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dledger.state.lookup.entries import (
    ENTRY_SIZE,
    KeyPlace,
    entries_of,
    place_of,
    search,
    sort,
    split,
)
from dledger.state.lookup.gone import gone_of
from dledger.state.lookup.runs import (
    Directory,
    Merge,
    Run,
    decode_directory,
    encode_directory,
)
from dledger.state.queues.garbage import Garbage
from dledger.state.queues.references import References
from dledger.state.queues.table import QueueTable
from dledger.state.tables import BLOCK_SIZE_TARGET, KEY_U64, PREFIX, Table, Writer, after, rows_in
from dledger_proto.batch.codec import BatchHeader

LEVEL_0_ENTRIES: Final = 8_192
MERGE_PACE: Final = LEVEL_0_ENTRIES // 2
"""Whenever so many hashes came in, every merge moves on."""
MERGE_STEP: Final = MERGE_PACE * 5 // 4
"""A merge moves by at least so many entries, so it ends before the next one of its level."""
RUNS_PER_MERGE: Final = 16
ENTRIES_PER_BLOCK: Final = 4 * BLOCK_SIZE_TARGET // ENTRY_SIZE
"""Four pages of the store: a merge costs a third less than with one, a lookup hardly more."""
LEVEL_0_BLOCK_SIZE: Final = 3 * BLOCK_SIZE_TARGET
"""A level-0 block is closed above this."""
CACHED_TOPICS_MAX: Final = 4_096
UNKNOWN_OFFSET: Final = (1 << 48) - 1
"""Base offset of a batch that waited, or waits, for a timer."""
_BLOCKS_AHEAD: Final = 2
_MERGE_ROUNDS_MAX: Final = 64
"""Bound on one move; a merge that lags after a huge batch catches up with the next moves."""
_RECORD: Final = struct.Struct("<IIqqQ")
_LEVEL_0: Final = b"\0"
_RUNS: Final = b"\1"
_END: Final = b"\xff" * (ENTRY_SIZE + 1)


@dataclass(slots=True)
class _Topic:
    """The directory of a topic and what its level 0 holds."""

    topic_id: bytes
    directory: Directory
    entries: int
    """Hashes in level 0, equal ones of a batch counted each."""
    block: int
    """Number of the newest level-0 block."""
    block_size: int


@dataclass(slots=True)
class _Added:
    """Level-0 records that are to be written together."""

    parts: list[bytes | memoryview] = field(default_factory=list[bytes | memoryview])
    hashes: int = 0


class KeyIndex:
    """The keys of all topics. What an entry's batches add is written by `write_changed`."""

    def __init__(
        self, writer: Writer, queues: QueueTable, garbage: Garbage, references: References
    ) -> None:
        self._writer = writer
        self._store = writer.store
        self._queues = queues
        self._garbage = garbage
        self._references = references
        self._topics: dict[bytes, _Topic] = {}
        self._added: dict[bytes, _Added] = {}

    def record(
        self,
        header: BatchHeader,
        batch: memoryview,
        base_offset: int,
        position: int,
        time_ms: int,
    ) -> None:
        """Index the keys of an appended batch; `write_changed` ends it."""
        count = header.key_count
        at = header.header_size + 20 * header.record_count
        head = _RECORD.pack(count, header.queue, time_ms, base_offset, position)
        added = self._added.get(header.topic_id)
        if added is None:
            added = self._added[header.topic_id] = _Added()
        added.parts += (head, batch[at : at + 8 * count])
        added.hashes += count

    def write_changed(self) -> None:
        """Write what was recorded since the last call, a row for each topic, and move merges."""
        if self._added:
            for topic_id, added in self._added.items():
                self._write(self._topics.get(topic_id) or self._load(topic_id), added)
            self._added.clear()

    def _write(self, topic: _Topic, added: _Added) -> None:
        if topic.block_size >= LEVEL_0_BLOCK_SIZE:
            topic.block += 1
            topic.block_size = 0
        key = _level_0_prefix(topic.topic_id) + KEY_U64.pack(topic.block)
        records = b"".join(added.parts)
        self._writer.append(key, records, is_new=not topic.block_size)
        topic.block_size += len(records)
        before, topic.entries = topic.entries, topic.entries + added.hashes
        if topic.entries // MERGE_PACE == before // MERGE_PACE:
            return
        if topic.entries >= LEVEL_0_ENTRIES:
            self._close_level_0(topic)
        for merge in list(topic.directory.merges):
            self._move(topic, merge, max(MERGE_STEP, added.hashes * 5 // 4))
        self._save(topic)

    def _load(self, topic_id: bytes) -> _Topic:
        value = self._store.get(PREFIX[Table.KEY_DIRECTORY] + topic_id)
        directory = Directory() if value is None else decode_directory(value)
        topic = _Topic(topic_id, directory, 0, directory.first_block, 0)
        for block, data in self._level_0_blocks(topic_id, directory):
            topic.block, topic.block_size = block, len(data)
            topic.entries += sum(len(hashes) // 8 for _, _, hashes in _records(data))
        if len(self._topics) >= CACHED_TOPICS_MAX:
            self._topics.clear()
        self._topics[topic_id] = topic
        return topic

    def _level_0_blocks(self, topic_id: bytes, directory: Directory) -> Iterator[tuple[int, bytes]]:
        prefix = _level_0_prefix(topic_id)
        start = prefix + KEY_U64.pack(directory.first_block)
        for key, data in rows_in(self._store, start, after(prefix)):
            yield KEY_U64.unpack(key[-8:])[0], data

    def _save(self, topic: _Topic) -> None:
        key = PREFIX[Table.KEY_DIRECTORY] + topic.topic_id
        self._writer.put(key, encode_directory(topic.directory))

    def forget_topic(self, topic_id: bytes) -> None:
        """Make the rows of a deleted topic garbage."""
        assert not self._added, "commands and batches share no entry"
        self._topics.pop(topic_id, None)
        self._writer.delete(PREFIX[Table.KEY_DIRECTORY] + topic_id)
        prefix = PREFIX[Table.KEY_HASHES] + topic_id
        self._garbage.add(prefix, after(prefix))

    # Merging.

    def _close_level_0(self, topic: _Topic) -> None:
        """Make level 0 a run of level 1, drop dead runs, begin merges of full levels."""
        records: list[tuple[KeyPlace, bytes]] = []
        times: list[int] = []
        for block, data in list(self._level_0_blocks(topic.topic_id, topic.directory)):
            for time_ms, place, hashes in _records(data):
                times.append(time_ms)
                records.append((place, hashes))
            self._writer.delete(_level_0_prefix(topic.topic_id) + KEY_U64.pack(block))
        entries = entries_of(records)
        directory = topic.directory
        last_position = records[-1][0].position
        count = len(entries) // ENTRY_SIZE
        run = Run(1, directory.take_run(), count, times[0], times[-1], last_position)
        self._write_entries(topic, run.number, entries, None)
        self._drop_dead_runs(topic)
        directory.runs.append(run)
        topic.entries = topic.block_size = 0
        topic.block = directory.first_block = topic.block + 1
        self._begin_merges(topic)

    def _drop_dead_runs(self, topic: _Topic) -> None:
        queues = self._queues.of_topic(topic.topic_id)
        firsts = [self._queues.first_batch(queue) for queue in queues]
        head = min([*firsts, self._references.head])
        directory = topic.directory
        merging = directory.merging()
        for run in directory.runs:
            if run.last_position < head and run.number not in merging:
                prefix = _run_prefix(topic.topic_id, run.number)
                self._garbage.add(prefix, after(prefix))
        directory.runs = [
            run for run in directory.runs if run.last_position >= head or run.number in merging
        ]

    def _begin_merges(self, topic: _Topic) -> None:
        directory = topic.directory
        busy = {merge.level for merge in directory.merges}
        merging = directory.merging()
        for level in sorted({run.level for run in directory.runs} - busy):
            ready = [
                run.number
                for run in directory.runs
                if run.level == level and run.number not in merging
            ]
            if len(ready) >= RUNS_PER_MERGE:
                inputs = tuple(ready[:RUNS_PER_MERGE])
                starts = [b""] * RUNS_PER_MERGE
                directory.merges.append(Merge(level, inputs, directory.take_run(), starts))

    def _move(self, topic: _Topic, merge: Merge, step: int) -> None:
        """Move a merge by at least `step` entries, or to its end."""
        moved = 0
        for _ in range(_MERGE_ROUNDS_MAX):
            count = self._move_once(topic, merge)
            if count is None:
                self._end_merge(topic, merge)
                return
            moved += count
            if moved >= step:
                return

    def _move_once(self, topic: _Topic, merge: Merge) -> int | None:
        """Move the next blocks' entries; return how many, or None when nothing was left."""
        blocks: list[tuple[int, bytes, bytes]] = []
        boundary = _END
        for place, number in enumerate(merge.inputs):
            prefix = _run_prefix(topic.topic_id, number)
            rows = self._store.scan(prefix + merge.starts[place], after(prefix), _BLOCKS_AHEAD)
            blocks += [(place, key, data) for key, data in rows]
            if len(rows) == _BLOCKS_AHEAD:
                boundary = min(boundary, rows[-1][1][-ENTRY_SIZE:])
        if not blocks:
            return None
        parts: list[bytes] = []
        stop_entry = boundary + b"\0"
        for place, key, data in blocks:
            stop = search(data, stop_entry)
            parts.append(data[search(data, merge.cursor) : stop])
            if stop == len(data):
                self._writer.delete(key)
                merge.starts[place] = key[-ENTRY_SIZE:] + b"\0"
        entries = sort(parts)
        live = self._without_trimmed(topic.topic_id, entries)
        open_block, in_block = self._write_entries(
            topic, merge.output, live, (merge.open_block, merge.in_block)
        )
        merge.open_block, merge.in_block = open_block, in_block
        merge.entries += len(live) // ENTRY_SIZE
        merge.cursor = stop_entry[: ENTRY_SIZE + 1]
        return len(entries) // ENTRY_SIZE

    def _without_trimmed(self, topic_id: bytes, entries: bytes) -> bytes:
        queues = self._queues.of_topic(topic_id)
        if not any(queue.minimum or self._queues.cleaned(queue) for queue in queues):
            return entries
        firsts = {queue.id[1]: self._queues.first_batch(queue) for queue in queues}
        cleaned = {queue.id[1]: self._queues.cleaned(queue) for queue in queues}
        pinned = self._references.head
        live: list[tuple[bytes, KeyPlace]] = []
        compared: dict[int, dict[int, int]] = {}
        """By queue: positions of batches that compaction may have deleted, by base offset."""
        for entry in split(entries):
            place = place_of(entry)
            number, base_offset = place.queue, place.base_offset
            if base_offset == UNKNOWN_OFFSET:
                is_live = place.position >= pinned
            else:
                is_live = place.position >= firsts.get(number, 0)
                if is_live and base_offset < cleaned.get(number, 0):
                    compared.setdefault(number, {})[base_offset] = place.position
            if is_live:
                live.append((entry, place))
        gone = {
            (queue.id[1], offset)
            for queue in queues
            for offset in gone_of(self._queues, queue, compared.get(queue.id[1], {}))
        }
        return b"".join(
            entry for entry, place in live if (place.queue, place.base_offset) not in gone
        )

    def _write_entries(
        self, topic: _Topic, run: int, entries: bytes, opened: tuple[bytes, int] | None
    ) -> tuple[bytes, int]:
        """Add sorted entries to the end of a run; return its open block's name and its entries."""
        prefix = _run_prefix(topic.topic_id, run)
        name, count = opened or (b"", 0)
        at = 0
        while at < len(entries):
            if not name or count == ENTRIES_PER_BLOCK:
                name, count = entries[at : at + ENTRY_SIZE], 0
            part = entries[at : at + (ENTRIES_PER_BLOCK - count) * ENTRY_SIZE]
            self._writer.append(prefix + name, part, is_new=not count)
            at += len(part)
            count += len(part) // ENTRY_SIZE
        return name, count

    def _end_merge(self, topic: _Topic, merge: Merge) -> None:
        directory = topic.directory
        inputs = [run for run in directory.runs if run.number in merge.inputs]
        directory.runs = [run for run in directory.runs if run.number not in merge.inputs]
        directory.merges.remove(merge)
        if merge.entries:
            directory.runs.append(
                Run(
                    merge.level + 1, merge.output, merge.entries,
                    min(run.first_time_ms for run in inputs),
                    max(run.last_time_ms for run in inputs),
                    max(run.last_position for run in inputs),
                )
            )  # fmt: skip

    # Lookup.

    def find(
        self,
        topic_id: bytes,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        up_to: int | None = None,
    ) -> Iterator[KeyPlace]:
        """Iterate over the batches that hold a hash, newest first, from position `up_to` back.

        Places may lie outside the time window or below a minimum: a run is skipped when no batch
        of it can lie inside the window. Valid until the next write.
        """
        topic = self._topics.get(topic_id) or self._load(topic_id)
        low = key_hash.to_bytes(8, "big")
        high = low + (_END if up_to is None else KEY_U64.pack(up_to + 1))
        in_level_0 = self._find_in_level_0(topic, key_hash.to_bytes(8, "little"))
        if up_to is not None:
            in_level_0 = [place for place in in_level_0 if place.position <= up_to]
        sources: list[Iterable[KeyPlace]] = [in_level_0]
        directory = topic.directory
        sources += [
            self._find_in_run(topic_id, merge.output, low, high) for merge in directory.merges
        ]
        cursors = {run: merge.cursor for merge in directory.merges for run in merge.inputs}
        for run in directory.runs:
            if run.first_time_ms <= end_ms and run.last_time_ms >= begin_ms:
                start = max(low, cursors.get(run.number, b""))
                sources.append(self._find_in_run(topic_id, run.number, start, high))
        return heapq.merge(*sources, reverse=True)

    def _find_in_level_0(self, topic: _Topic, wanted: bytes) -> list[KeyPlace]:
        found: list[KeyPlace] = []
        for _, data in self._level_0_blocks(topic.topic_id, topic.directory):
            if wanted in data:
                for _, place, hashes in _records(data):
                    at = hashes.find(wanted)
                    while at > 0 and at % 8:
                        at = hashes.find(wanted, at + 1)
                    if at >= 0:
                        found.append(place)
        found.reverse()
        return found

    def _find_in_run(
        self, topic_id: bytes, run: int, low: bytes, high: bytes
    ) -> Iterator[KeyPlace]:
        """Iterate backwards over the places of entries with low <= entry < high."""
        prefix = _run_prefix(topic_id, run)
        stop = prefix + high
        while rows := self._store.scan(prefix, stop, 1, reverse=True):
            key, data = rows[0]
            first = search(data, low)
            for entry in reversed(split(data[first : search(data, high)])):
                yield place_of(entry)
            if first > 0:
                return
            stop = key


def _records(data: bytes) -> Iterator[tuple[int, KeyPlace, bytes]]:
    """Iterate over a level-0 block: store time, place and hashes of each batch."""
    at = 0
    while at < len(data):
        count, queue, time_ms, base_offset, position = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        yield time_ms, KeyPlace(position, queue, base_offset), data[at : at + 8 * count]
        at += 8 * count


def _level_0_prefix(topic_id: bytes) -> bytes:
    return PREFIX[Table.KEY_HASHES] + topic_id + _LEVEL_0


def _run_prefix(topic_id: bytes, run: int) -> bytes:
    return PREFIX[Table.KEY_HASHES] + topic_id + _RUNS + KEY_U64.pack(run)
