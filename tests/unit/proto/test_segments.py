"""The read-only segment reader on folders made by hand: walks, spans, ends, damage."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dledger_proto.entry import (
    KIND_BATCHES,
    KIND_COMMANDS,
    KIND_NO_OP,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    frame_entry,
    segment_name,
    stamp_local,
)
from dledger_proto.errors import Code
from dledger_proto.segments import DamagedSegment, SegmentFile, SegmentReader, open_folder
from tests.unit.proto.samples import make_batch, refused

GROUP_ID = bytes(range(16))


@dataclass
class Log:
    """A log written with the format's own functions: segments as byte arrays by base position."""

    group_id: bytes = GROUP_ID
    segments: dict[int, bytearray] = field(default_factory=dict)
    index: int = 0
    position: int = 0
    term: int = 1
    crc: int = 0
    salt: bytes = b""
    positions: list[int] = field(default_factory=list)

    def roll(self) -> None:
        self.salt = b"salt%04d" % len(self.segments)
        header = SegmentHeader(
            self.group_id, self.position, self.index + 1, self.term if self.index else 0,
            self.crc, self.salt,
        )  # fmt: skip
        self.segments[self.position] = bytearray(header.encode())

    def add(self, kind: int, *payloads: bytes, **changes: int) -> None:
        place = {
            "index": self.index + 1, "term": self.term, "time_ms": 1000 + self.index,
            "position": self.position, "previous_crc": self.crc,
        } | changes  # fmt: skip
        header, crc = frame_entry(kind, payloads, **place)
        data = stamp_local(header, self.salt, 0) + b"".join(payloads)
        self.segments[max(self.segments)] += data
        self.positions.append(self.position)
        self.index, self.position, self.crc = place["index"], self.position + len(data), crc
        self.term = place["term"]

    def write(self, folder: Path) -> Path:
        for base, data in self.segments.items():
            (folder / segment_name(base)).write_bytes(data)
        return folder

    def reader(self) -> SegmentReader:
        return SegmentReader([
            SegmentFile(segment_name(base), len(data), pread(bytes(data)))
            for base, data in self.segments.items()
        ])  # fmt: skip


def pread(data: bytes, at_once: int = 1 << 30) -> Callable[[int, int], bytes]:
    return lambda size, offset: data[offset : offset + min(size, at_once)]


def three_segments() -> Log:
    log = Log()
    for segment in range(3):
        log.roll()
        log.add(KIND_NO_OP)
        log.add(KIND_COMMANDS, b"command %d" % segment, b"", b"x" * 3000)
        log.add(KIND_BATCHES, make_batch(), make_batch(), term=segment + 1)
    return log


def indexes(reader: SegmentReader, **arguments: Any) -> list[int]:
    return [entry.header.index for entry in reader.entries(**arguments)]


def damage_of(reader: SegmentReader) -> DamagedSegment:
    with pytest.raises(DamagedSegment) as caught:
        list(reader.entries())
    return caught.value


def test_a_folder_is_walked_from_its_first_entry(tmp_path: Path) -> None:
    log = three_segments()
    (tmp_path / "00000000000000000000.idx").write_bytes(b"not a segment")
    with open_folder(log.write(tmp_path)) as reader:
        entries = list(reader.entries())
        assert [entry.header.index for entry in entries] == list(range(1, 10))
        assert [entry.header.position for entry in entries] == log.positions
        assert entries[1].payloads[2] == b"x" * 3000
        assert entries[2].payloads == [make_batch(), make_batch()]
        assert reader.group_id == GROUP_ID
        assert (reader.first_position, reader.first_index) == (0, 1)
        assert len(reader.headers) == 3


def test_a_walk_starts_at_a_position_or_an_index() -> None:
    log = three_segments()
    reader = log.reader()
    for number, position in enumerate(log.positions):
        assert indexes(reader, position=position) == list(range(number + 1, 10))
        assert indexes(reader, first_index=number + 1) == list(range(number + 1, 10))
    assert indexes(reader, position=log.position) == []
    assert indexes(reader, first_index=10) == []
    assert indexes(reader, first_index=99) == []


def test_no_files_are_an_empty_log(tmp_path: Path) -> None:
    with open_folder(tmp_path) as reader:
        assert list(reader.entries()) == []
        assert (reader.first_position, reader.first_index) == (None, None)


def test_the_zeros_of_preallocation_are_the_end() -> None:
    log = three_segments()
    for base in log.segments:
        log.segments[base] += bytes(3 << 20)
    assert indexes(log.reader()) == list(range(1, 10))


def test_a_last_file_that_was_never_finished_is_left_out() -> None:
    for unfinished in (b"", b"DLS1", bytes(SEGMENT_HEADER_SIZE), bytes(1 << 20)):
        log = three_segments()
        log.segments[log.position] = bytearray(unfinished)
        assert indexes(log.reader()) == list(range(1, 10))


def test_an_empty_segment_at_the_end_is_fine() -> None:
    log = three_segments()
    log.roll()
    assert indexes(log.reader()) == list(range(1, 10))


def test_spans_are_read_across_files() -> None:
    log = three_segments()
    whole = b"".join(bytes(data[SEGMENT_HEADER_SIZE:]) for _, data in sorted(log.segments.items()))
    reader = log.reader()
    for start, size in ((0, len(whole)), (5, 0), (log.positions[3] - 7, 20), (100, 9000)):
        assert reader.read_span(start, size) == whole[start : start + size]
    entry = next(reader.entries(position=log.positions[5]))
    assert reader.read_span(entry.starts[1], len(make_batch())) == make_batch()
    with pytest.raises(DamagedSegment, match="the file ends, 1 bytes missing"):
        reader.read_span(log.position - 5, 6)


def test_reads_that_come_in_pieces_are_put_together() -> None:
    log = three_segments()
    reader = SegmentReader([
        SegmentFile(segment_name(base), len(data), pread(bytes(data), at_once=7))
        for base, data in log.segments.items()
    ])  # fmt: skip
    assert indexes(reader) == list(range(1, 10))


def test_a_trimmed_head_is_said() -> None:
    log = three_segments()
    first = min(log.segments)
    del log.segments[first]
    reader = log.reader()
    assert indexes(reader) == list(range(4, 10))
    refused(lambda: reader.read_span(0, 10), Code.HEAD_TRIMMED)
    refused(lambda: indexes(reader, position=0), Code.HEAD_TRIMMED)
    refused(lambda: indexes(reader, first_index=3), Code.HEAD_TRIMMED)


def test_places_are_named() -> None:
    log = three_segments()
    base = sorted(log.segments)[1]
    assert log.reader().locate(base + 10) == (segment_name(base), SEGMENT_HEADER_SIZE + 10)


def test_one_flipped_bit_is_found_and_its_entry_named() -> None:
    log = Log()
    log.roll()
    log.add(KIND_NO_OP)
    log.add(KIND_COMMANDS, b"command")
    log.add(KIND_BATCHES, make_batch())
    sound = bytes(log.segments[0])
    for bit in range(8 * SEGMENT_HEADER_SIZE, 8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        log.segments[0] = data
        damage = damage_of(log.reader())
        position = bit // 8 - SEGMENT_HEADER_SIZE
        assert damage.position == max(start for start in log.positions if start <= position)
        assert damage.file == segment_name(0)
        assert damage.in_last_segment


def test_a_cut_file_is_damaged_where_the_entry_starts() -> None:
    log = three_segments()
    last = max(log.segments)
    sound = bytes(log.segments[last])
    boundaries = {position for position in log.positions if position >= last} | {log.position}
    for size in range(SEGMENT_HEADER_SIZE, len(sound), 13):
        log.segments[last] = bytearray(sound[:size])
        position = last + size - SEGMENT_HEADER_SIZE
        if position in boundaries:
            continue
        damage = damage_of(log.reader())
        assert damage.position == max(start for start in log.positions if start <= position)
        assert damage.in_last_segment


def test_a_torn_write_over_preallocated_zeros_is_damage() -> None:
    log = Log()
    log.roll()
    log.add(KIND_COMMANDS, b"x" * 2000)
    log.segments[0][SEGMENT_HEADER_SIZE + 500 :] = bytes(5000)
    assert "crc" in damage_of(log.reader()).reason
    log.segments[0][SEGMENT_HEADER_SIZE : SEGMENT_HEADER_SIZE + 500] = bytes(500)
    assert indexes(log.reader()) == []
    log.segments[0][SEGMENT_HEADER_SIZE + 4000] = 1
    assert damage_of(log.reader()).position == 0


def test_damage_in_the_middle_names_its_file() -> None:
    log = three_segments()
    base = sorted(log.segments)[1]
    log.segments[base][SEGMENT_HEADER_SIZE + 20] ^= 1
    damage = damage_of(log.reader())
    assert (damage.file, damage.position, damage.in_last_segment) == (
        segment_name(base), base, False,
    )  # fmt: skip
    assert str(damage).startswith(f"{segment_name(base)}: position {base}: header_crc")


def test_a_missing_file_in_the_middle_is_found() -> None:
    log = three_segments()
    base = sorted(log.segments)[1]
    del log.segments[base]
    damage = damage_of(log.reader())
    assert (damage.file, damage.position) == (segment_name(0), base)


def test_a_missing_entry_at_the_end_of_a_sealed_segment_is_found() -> None:
    log = three_segments()
    cut = log.positions[2]
    log.segments[0] = log.segments[0][: SEGMENT_HEADER_SIZE + cut]
    damage = damage_of(log.reader())
    assert (damage.file, damage.position) == (segment_name(0), cut)


@pytest.mark.parametrize(
    "changes",
    [{"index": 3}, {"term": 0}, {"previous_crc": 5}, {"time_ms": 1}, {"position": 1}],
    ids=str,
)
def test_an_entry_that_does_not_follow_is_damage(changes: dict[str, int]) -> None:
    log = Log()
    log.roll()
    log.add(KIND_NO_OP)
    log.add(KIND_NO_OP, **changes)
    assert damage_of(log.reader()).position == log.positions[1]


def test_an_entry_of_another_file_is_damage() -> None:
    log = Log()
    log.roll()
    log.add(KIND_NO_OP)
    log.salt = b"another!"
    log.add(KIND_NO_OP)
    assert damage_of(log.reader()).position == log.positions[1]


def test_a_segment_that_does_not_follow_is_damage() -> None:
    log = three_segments()
    other = three_segments()
    base = sorted(log.segments)[2]
    header = SegmentHeader(GROUP_ID, base, 7, 2, 12345, b"salt0002").encode()
    log.segments[base][:SEGMENT_HEADER_SIZE] = header
    damage = damage_of(log.reader())
    assert damage.position == base
    assert damage.reason.startswith("the segment before ends at")
    other.segments[base][16] ^= 1
    with pytest.raises(DamagedSegment, match="crc"):
        other.reader()


def test_segments_of_two_groups_are_refused() -> None:
    log = three_segments()
    base = sorted(log.segments)[2]
    header = SegmentHeader(bytes(15) + b"x", base, 7, 2, 0, b"salt0002").encode()
    log.segments[base][:SEGMENT_HEADER_SIZE] = header
    with pytest.raises(DamagedSegment, match="several groups"):
        log.reader()


def test_the_first_segment_of_a_group_may_be_older_than_the_group() -> None:
    log = Log(group_id=bytes(16))
    log.roll()
    log.add(KIND_NO_OP)
    log.group_id = GROUP_ID
    log.roll()
    log.add(KIND_NO_OP)
    reader = log.reader()
    assert reader.group_id == GROUP_ID
    assert indexes(reader) == [1, 2]


def test_a_file_under_a_wrong_name_is_refused() -> None:
    log = three_segments()
    data = bytes(log.segments[0])
    with pytest.raises(DamagedSegment, match="starts at 0"):
        SegmentReader([SegmentFile(segment_name(5), len(data), pread(data))])
    with pytest.raises(ValueError, match="no name"):
        SegmentReader([SegmentFile("x.log", len(data), pread(data))])


def test_payloads_are_checked_only_when_asked() -> None:
    log = Log()
    log.roll()
    log.add(KIND_COMMANDS, b"command")
    log.segments[0][-1] ^= 1
    assert [e.header.index for e in log.reader().entries(check_payloads=False)] == [1]
    assert "payload 0" in damage_of(log.reader()).reason
