"""The read-only segment reader on files made by hand: headers, spans, ends, damage."""

from collections.abc import Callable
from dataclasses import dataclass, field

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
from dledger_proto.segments import DamagedSegment, SegmentFile, SegmentReader
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


def whole(log: Log) -> bytes:
    return b"".join(bytes(data[SEGMENT_HEADER_SIZE:]) for _, data in sorted(log.segments.items()))


def test_the_headers_say_the_group_and_where_the_log_starts() -> None:
    reader = three_segments().reader()
    assert reader.group_id == GROUP_ID
    assert reader.first_position == 0
    assert [header.base_index for header in reader.headers] == [1, 4, 7]


def test_no_files_are_an_empty_log() -> None:
    reader = SegmentReader([])
    assert (reader.first_position, list(reader.headers)) == (None, [])


def test_a_last_file_that_was_never_finished_is_left_out() -> None:
    for unfinished in (b"", b"DLS1", bytes(SEGMENT_HEADER_SIZE), bytes(1 << 20)):
        log = three_segments()
        log.segments[log.position] = bytearray(unfinished)
        assert len(log.reader().headers) == 3


def test_spans_are_read_across_files() -> None:
    log = three_segments()
    content = whole(log)
    reader = log.reader()
    for start, size in ((0, len(content)), (5, 0), (log.positions[3] - 7, 20), (100, 9000)):
        assert reader.read_span(start, size) == content[start : start + size]
    last_batch = log.position - len(make_batch())
    assert reader.read_span(last_batch, len(make_batch())) == make_batch()
    with pytest.raises(DamagedSegment, match="the file ends, 1 bytes missing"):
        reader.read_span(log.position - 5, 6)


def test_reads_that_come_in_pieces_are_put_together() -> None:
    log = three_segments()
    reader = SegmentReader([
        SegmentFile(segment_name(base), len(data), pread(bytes(data), at_once=7))
        for base, data in log.segments.items()
    ])  # fmt: skip
    assert reader.read_span(0, log.position) == whole(log)


def test_a_trimmed_head_is_said() -> None:
    log = three_segments()
    del log.segments[0]
    reader = log.reader()
    assert reader.first_position == log.positions[3]
    refused(lambda: reader.read_span(0, 10), Code.HEAD_TRIMMED)


def test_places_are_named() -> None:
    log = three_segments()
    base = sorted(log.segments)[1]
    assert log.reader().locate(base + 10) == (segment_name(base), SEGMENT_HEADER_SIZE + 10)


def test_a_missing_entry_at_the_end_of_a_sealed_segment_is_found() -> None:
    log = three_segments()
    cut = log.positions[2]
    log.segments[0] = log.segments[0][: SEGMENT_HEADER_SIZE + cut]
    with pytest.raises(DamagedSegment) as caught:
        log.reader().read_span(0, log.position)
    assert str(caught.value).startswith(f"{segment_name(0)}: position {cut}: the file ends")


def test_a_damaged_header_is_refused() -> None:
    log = three_segments()
    log.segments[sorted(log.segments)[2]][16] ^= 1
    with pytest.raises(DamagedSegment, match="crc"):
        log.reader()


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


def test_a_file_under_a_wrong_name_is_refused() -> None:
    log = three_segments()
    data = bytes(log.segments[0])
    with pytest.raises(DamagedSegment, match="starts at 0"):
        SegmentReader([SegmentFile(segment_name(5), len(data), pread(data))])
    with pytest.raises(ValueError, match="no name"):
        SegmentReader([SegmentFile("x.log", len(data), pread(data))])
