"""Recovery: from what lies on the disk to the log as it was, reading only from the checkpoint on.

Owns: finding the facts for `table.py`, doing what its rows say, and making durable what is kept.
Recovery reads the folder's listing, 128 bytes of every segment, the checkpoint, and the entries
behind it. It does not decide what a fact means (the table), nor look for damage in older entries
(found on reading, I15).

Before the log counts as recovered, recovery *writes again* and syncs everything that it keeps
behind the last proof of a sync. After a failed write-back an earlier process may have died with
pages that are clean in the cache but never reached the disk. A mere fdatasync would not write them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dledger.log.atomic_file import TEMPORARY_SUFFIX, CorruptFile, NewerFile, read_file
from dledger.log.checkpoint import Checkpoint, parse_checkpoint
from dledger.log.errors import DamagedLog, NewerFormat
from dledger.log.folder import DataFolder
from dledger.log.memory.chain import START, Chain
from dledger.log.memory.samples import Samples, TermStarts
from dledger.log.memory.segment import INDEX_SUFFIX, Segment, file_offset, index_name
from dledger.log.reading.file_pool import FilePool
from dledger.log.reading.walk import BadFrame, ReadAt, walk_entries
from dledger.log.recovery.table import (
    FILE_ROWS,
    FOLDER_ROWS,
    TAIL_ROWS,
    Action,
    Ending,
    FileFacts,
    FolderFacts,
    FoundCheckpoint,
    FoundHeader,
    Place,
    Row,
    TailFacts,
    decide,
)
from dledger.types import LogIndex, Position
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE_MAX,
    ENTRY_MAGIC,
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    NewerEntry,
    SegmentHeader,
    check_local,
    parse_entry_header,
    parse_segment_header,
    parse_segment_name,
    segment_name,
)

SEARCH_CHUNK: Final = 1 << 20
_POSITION_AT: Final = 40
"""Where an entry's header holds its position."""


@dataclass(slots=True)
class Recovered:
    """A log as recovery found it, all of it durable."""

    checkpoint: Checkpoint
    group_id: bytes = b""
    segments: list[Segment] = field(default_factory=list[Segment])
    terms: TermStarts = field(default_factory=TermStarts)
    end: Chain = field(default_factory=Chain)
    synced_position: Position = START
    """The newest proof of a sync that was found."""
    notes: list[str] = field(default_factory=list[str])
    """A line for each decision that changed something on disk."""


def recover(folder: DataFolder, pool: FilePool) -> Recovered:
    """Return the log of a folder, made durable; DamagedLog when acknowledged bytes may be lost."""
    recovery = _Recovery(folder, pool)
    log = recovery.examine()
    recovery.carry_out(log)
    return log


def examine(folder: DataFolder, pool: FilePool) -> Recovered:
    """Return what `recover` would, or raise what it would raise; nothing on the disk is changed.

    `notes` tell what it would change.
    """
    return _Recovery(folder, pool).examine()


class _Recovery:
    """One run: every decision first, then the changes on the disk."""

    def __init__(self, folder: DataFolder, pool: FilePool) -> None:
        self._folder = folder
        self._fs = folder.fs
        self._pool = pool
        self._checkpoint_problem = ""
        self._unwanted: list[str] = []
        self._cut_size: int | None = None
        """What the last file is to be cut to."""

    def examine(self) -> Recovered:
        """Make every decision. Only reads."""
        found, checkpoint = self._read_checkpoint()
        names = self._fs.names(self._folder.log_path)
        bases = sorted(b for b in map(parse_segment_name, names) if b is not None)
        formed = bool(self._folder.identity.group_id)
        self._decide_folder(FolderFacts(found, bool(bases), formed), checkpoint)
        log = Recovered(
            checkpoint,
            group_id=checkpoint.group_id or self._folder.identity.group_id,
            terms=TermStarts(checkpoint.term_starts),
            end=checkpoint.end,
            synced_position=Position(max(checkpoint.end.position, formed)),
        )
        self._take_covered(log, bases)
        self._read_on(log, bases)
        if not log.end.index:
            self._decide_folder(FolderFacts(FoundCheckpoint.EMPTY, False, formed), checkpoint)
            # A file without entries would fix a group id that nothing has decided yet.
            self._unwanted += [segment.name for segment in log.segments]
            log.segments.clear()
        return log

    def carry_out(self, log: Recovered) -> None:
        """Do on the disk what was decided."""
        self._clean_up(log)
        if log.segments:
            self._make_durable(log)

    def _decide_folder(self, facts: FolderFacts, checkpoint: Checkpoint) -> None:
        row = decide(FOLDER_ROWS, facts)
        if row.action is Action.REFUSE:
            path = self._folder.checkpoint_path
            raise _refused(row, path, checkpoint.end.position, self._checkpoint_problem)

    def _read_checkpoint(self) -> tuple[FoundCheckpoint, Checkpoint]:
        try:
            content = read_file(self._fs, self._folder.checkpoint_path)
            if content is None:
                return FoundCheckpoint.MISSING, Checkpoint()
            checkpoint = parse_checkpoint(content)
        except NewerFile as error:
            raise NewerFormat(self._folder.checkpoint_path, str(error)) from error
        except CorruptFile as error:
            self._checkpoint_problem = str(error)
            return FoundCheckpoint.DAMAGED, Checkpoint()
        found = FoundCheckpoint.COVERS if checkpoint.segments else FoundCheckpoint.EMPTY
        return found, checkpoint

    # Files up to the last one that the checkpoint lists: only their headers are read.

    def _take_covered(self, log: Recovered, bases: list[int]) -> None:
        listed = dict(log.checkpoint.segments)
        for base in sorted({*bases, *listed}):
            if base > max(listed, default=-1):
                break
            place = (
                Place.COVERED if base in listed
                else Place.TRIMMED if base < log.checkpoint.first_position
                else Place.STRAY
            )  # fmt: skip
            header, found, why = None, FoundHeader.MISSING, "the file is missing"
            if base in bases:
                header, found, why = self._read_header(log, base)
            if header is not None and header.base_index != listed.get(base, header.base_index):
                found = FoundHeader.FOREIGN
                why = f"its first index is {header.base_index}, not {listed[base]}"
            facts = FileFacts(place, found, last=base == bases[-1], written=False)
            if self._decide_file(log, base, facts, why) and header is not None:
                self._use(log, header)
        if log.segments:
            active = log.segments[-1]
            active.samples = Samples(log.checkpoint.samples)
            active.time_min_ms = log.checkpoint.time_min_ms
            active.time_max_ms = log.checkpoint.time_max_ms
            self._check_sizes(log)

    def _read_header(
        self, log: Recovered, base: int
    ) -> tuple[SegmentHeader | None, FoundHeader, str]:
        try:
            content = self._pool.pread(self._path(base), SEGMENT_HEADER_SIZE, 0)
            header = parse_segment_header(content)
        except NewerEntry as error:
            raise NewerFormat(self._path(base), str(error)) from error
        except CorruptEntry as error:
            return None, FoundHeader.BAD, str(error)
        why = ""
        if header.base_position != base:
            why = f"its header says position {header.base_position}"
        elif log.group_id and header.group_id != log.group_id:
            why = f"it is of group id {header.group_id.hex()}, this is {log.group_id.hex()}"
        return header, FoundHeader.FOREIGN if why else FoundHeader.SOUND, why

    def _decide_file(self, log: Recovered, base: int, facts: FileFacts, why: str) -> bool:
        """Return whether the file is used; remember it when it is to be removed."""
        row = decide(FILE_ROWS, facts)
        if row.action is Action.REFUSE:
            raise _refused(row, self._path(base), Position(base), why)
        if row.action is Action.REMOVE:
            name = segment_name(base)
            log.notes.append(f"{row.label}: {name} removed: it lies {facts.place.value}; {why}")
            self._unwanted.append(name)
        return row.action is Action.USE

    def _use(self, log: Recovered, header: SegmentHeader) -> None:
        if log.segments:
            log.segments[-1].sealed = True
            log.segments[-1].samples = None
        if header.group_id.strip(b"\0"):
            log.group_id = header.group_id
        log.segments.append(Segment(header, on_disk=True))

    def _check_sizes(self, log: Recovered) -> None:
        """Refuse when a listed file is shorter than the entries the checkpoint says it holds."""
        ends = [segment.base for segment in log.segments[1:]] + [log.checkpoint.end.position]
        for segment, end in zip(log.segments, ends, strict=True):
            if self._file_end(segment.base) < end:
                position = self._file_end(segment.base)
                facts = TailFacts(Ending.NOTHING, segment is log.segments[-1], synced=True)
                reason = f"the end of the file, its entries reach up to position {end}"
                raise _refused(decide(TAIL_ROWS, facts), self._path(segment.base), position, reason)

    # Entries behind the checkpoint, and the files made since.

    def _read_on(self, log: Recovered, bases: list[int]) -> None:
        listed = max((base for base, _ in log.checkpoint.segments), default=-1)
        later = [base for base in bases if base > listed]
        if log.segments:
            self._read_segment(log, later)
        for place, base in enumerate(later):
            header, found, why = self._read_header(log, base)
            if header is not None and found is FoundHeader.SOUND:
                why = _unchained(log.end, header)
                found = FoundHeader.FOREIGN if why else found
            written = found is FoundHeader.BAD and self._any_byte(base, Position(base))
            facts = FileFacts(Place.LATER, found, base == bases[-1], written)
            if self._decide_file(log, base, facts, why) and header is not None:
                self._use(log, header)
                self._read_segment(log, later[place + 1 :])

    def _read_segment(self, log: Recovered, later: list[int]) -> None:
        """Read the newest segment in use to its end; `later` are the files behind it."""
        segment = log.segments[-1]
        end = Position(later[0]) if later else self._file_end(segment.base)
        ending, reason = Ending.NOTHING, "the entries end here"
        try:
            for entry in walk_entries(self._reader(segment.base), log.end.position, end):
                header = entry.header
                stale = log.end.mismatch(header)
                if stale is not None:
                    ending, reason = Ending.STALE, stale
                    break
                if not check_local(header, segment.header.salt):
                    ending, reason = Ending.TORN, f"entry {header.index}: local_crc does not match"
                    break
                segment.note(LogIndex(header.index), Position(header.position), header.time_ms)
                log.end = log.end.after(header)
                log.terms.note(log.end.index, log.end.term)
                log.synced_position = Position(max(log.synced_position, header.synced_position))
        except BadFrame as bad:
            if bad.newer:
                raise NewerFormat(self._path(segment.base), str(bad)) from bad
            ending, reason = Ending.TORN, bad.reason
        if log.end.position < end or not later:
            self._decide_end(log, ending, reason, later)

    def _decide_end(self, log: Recovered, ending: Ending, reason: str, later: list[int]) -> None:
        """Decide about the place where reading stopped; `later` are the files behind."""
        segment, position = log.segments[-1], log.end.position
        if ending is Ending.TORN and not self._any_byte(segment.base, position):
            ending = Ending.NOTHING
        proof = int(log.synced_position)
        if ending is not Ending.NOTHING:
            proof = max(proof, self._proof_behind(segment, position))
        row = decide(TAIL_ROWS, TailFacts(ending, not later, synced=proof > position))
        if row.action is Action.REFUSE:
            if proof > position:
                reason += f" (synced is everything up to position {proof})"
            raise _refused(row, self._path(segment.base), position, reason)
        if row.action is Action.CUT:
            size = self._file_end(segment.base) - position
            log.notes.append(f"{row.label}: {size} bytes cut at position {position}: {reason}")
            self._cut_size = segment.file_offset(position)

    def _proof_behind(self, segment: Segment, position: Position) -> int:
        """Return the highest synced position that a later entry's stamp in this file proves.

        An entry counts when its header, its stamp (salted: nobody else can write one) and its
        place agree. Looks for the magic at every byte, so it does not depend on any frame before.
        """
        proof = 0
        end = self._file_end(segment.base)
        overlap = len(ENTRY_MAGIC) - 1 + _POSITION_AT + 8
        for start, chunk in self._chunks(segment.base, position, overlap):
            at = chunk.find(ENTRY_MAGIC)
            while at >= 0:
                place = start + at
                said = chunk[at + _POSITION_AT : at + _POSITION_AT + 8]
                if int.from_bytes(said, "little") == place and place < end:
                    proof = max(proof, self._stamp_at(segment, Position(place)))
                at = chunk.find(ENTRY_MAGIC, at + 1)
        return proof

    def _stamp_at(self, segment: Segment, position: Position) -> int:
        header_bytes = self._reader(segment.base)(ENTRY_HEADER_SIZE_MAX, position)
        try:
            header = parse_entry_header(header_bytes)
        except NewerEntry as error:
            raise NewerFormat(self._path(segment.base), str(error)) from error
        except CorruptEntry:
            return 0
        return header.synced_position if check_local(header, segment.header.salt) else 0

    # Changes on the disk.

    def _clean_up(self, log: Recovered) -> None:
        """Remove unwanted segments, and indexes and temporary files that belong to nothing."""
        kept = {index_name(segment.base) for segment in log.segments}
        for name in self._fs.names(self._folder.log_path):
            orphan = name.endswith(INDEX_SUFFIX) and name not in kept
            if name in self._unwanted or orphan or name.endswith(TEMPORARY_SUFFIX):
                path = f"{self._folder.log_path}/{name}"
                self._pool.forget(path)
                self._fs.unlink(path)
        if self._unwanted:
            self._fs.sync_folder(self._folder.log_path)

    def _make_durable(self, log: Recovered) -> None:
        """Cut, and write and sync again what no stamp proves to be synced."""
        segment = log.segments[-1]
        base, end = segment.base, log.end.position
        proven = log.synced_position
        start = 0 if proven <= base else segment.file_offset(proven)
        file = self._fs.open(self._path(base))
        try:
            if self._cut_size is not None:
                file.truncate(self._cut_size)
            stop = segment.file_offset(end)
            for offset in range(start, stop, SEARCH_CHUNK):
                file.pwritev([file.pread(min(SEARCH_CHUNK, stop - offset), offset)], offset)
            file.fdatasync()
        finally:
            file.close()
        log.synced_position = end

    # Reading.

    def _path(self, base: int) -> str:
        return f"{self._folder.log_path}/{segment_name(base)}"

    def _file_end(self, base: int) -> Position:
        size = self._pool.size(self._path(base))
        return Position(base + max(0, size - SEGMENT_HEADER_SIZE))

    def _reader(self, base: int) -> ReadAt:
        path = self._path(base)

        def read(size: int, position: Position) -> bytes:
            return self._pool.pread(path, size, file_offset(Position(base), position))

        return read

    def _any_byte(self, base: int, position: Position) -> bool:
        return any(chunk.strip(b"\0") for _, chunk in self._chunks(base, position, 0))

    def _chunks(self, base: int, position: Position, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) up to the file's end; each chunk repeats `overlap` bytes."""
        read = self._reader(base)
        end = self._file_end(base)
        while position < end:
            chunk = read(SEARCH_CHUNK + overlap, position)
            yield position, chunk
            position = Position(position + SEARCH_CHUNK)


def _refused(row: Row, path: str, position: Position, found: str) -> DamagedLog:
    return DamagedLog(path, position, row.label, row.says.format(position=position, found=found))


def _unchained(end: Chain, header: SegmentHeader) -> str:
    """Say why a segment does not follow the log's end; empty when it does."""
    said = (header.base_position, header.base_index, header.previous_term, header.previous_crc)
    known = (end.position, end.index + 1, end.term, end.crc)
    return (
        (
            f"its header says that (position, index, term, crc) before it are {said}, the entries "
            f"before it end with {known}"
        )
        if said != known
        else ""
    )
