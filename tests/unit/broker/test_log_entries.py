"""Headers read in blocks: every entry once, wherever a block ends.

Goal: an entry whose header, or its table of payloads, lies across the end of a block is read like
any other. Method: an entry of a chosen size puts the next header at each place around the edge.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.log.commit_log import CommitLog
from dledger.types import EntryRef, LogIndex, Position, Span, Term
from dledger_broker.read.log_entries import ENTRIES_PER_REPLY, READ_BYTES, log_entries, read_headers
from dledger_proto.entry import ENTRY_HEADER_SIZE, KIND_COMMANDS, frame_entry
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.test_messaging import Host, messaging

START = 1_000
"""Position of the first entry."""


class Log:
    """The bytes of some entries, as a log gives them."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Take (payload count, size of the first payload) of each entry."""
        self.data = bytearray()
        self.error: OSError | None = None
        self.rows: list[tuple[int, int, int]] = []
        previous = 0
        for number, (count, size) in enumerate(shapes, 1):
            payloads = [bytes(size if at == 0 else 1) for at in range(count)]
            header, previous = frame_entry(
                KIND_COMMANDS, payloads, index=number, term=3, time_ms=5,
                position=START + len(self.data), previous_crc=previous,
            )  # fmt: skip
            self.data += header + b"".join(payloads)
            self.rows.append((number, 3, previous))

    def read_span(self, span: Span) -> bytes:
        at = span.position - START
        return bytes(self.data[at : at + span.size])

    first_index = 1

    def ref(self, index: LogIndex) -> EntryRef:
        if self.error is not None:
            raise self.error
        return EntryRef(index, Term(3), Position(START), len(self.data), 0)

    def path_of(self, position: int) -> str:
        return "segment"

    def headers(self, count_max: int = ENTRIES_PER_REPLY) -> list[tuple[int, int, int]]:
        end = START + len(self.data)
        found, ended_at = read_headers(cast("CommitLog", self), START, end, count_max)
        if len(found) == len(self.rows):
            assert ended_at == end
        return found


def first_size(header_at: int) -> int:
    """Size of the first entry's payload that puts the second entry at an offset."""
    return header_at - ENTRY_HEADER_SIZE - 8


@pytest.mark.parametrize("payloads", [1, 2, 40, 4_096])
def test_a_header_across_the_end_of_a_block(payloads: int) -> None:
    """The edge before, at and behind each part of the second entry's header."""
    header_size = ENTRY_HEADER_SIZE + 8 * payloads
    places = {0, 1, 4, 71, 72, 73, 79, 80, 81, header_size - 1, header_size, header_size + 1}
    for inside in sorted(places):
        log = Log([(1, first_size(READ_BYTES - inside)), (payloads, 30), (3, 9)])
        assert log.headers() == log.rows, f"{inside} bytes of the header in the first block"


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from((1, 2, 17, 300, 3_000)),
            st.one_of(
                st.integers(1, 300),
                st.integers(READ_BYTES - 400, READ_BYTES + 400),
                st.integers(1, 3 * READ_BYTES),
            ),
        ),
        min_size=1, max_size=12,
    ),
    count_max=st.integers(1, 15),
)  # fmt: skip
def test_all_headers_whatever_the_sizes(shapes: list[tuple[int, int]], count_max: int) -> None:
    log = Log(shapes)
    assert log.headers() == log.rows
    assert log.headers(count_max) == log.rows[:count_max]


def test_a_damaged_header_is_said_also_at_the_edge() -> None:
    """Also one that ends with the log: waiting for more of it would be for ever."""
    log = Log([(1, first_size(READ_BYTES - 80)), (40, 30)])
    log.data[READ_BYTES - 80 + 20] ^= 1
    with pytest.raises(DledgerError, match=f"at position {START + READ_BYTES - 80} is damaged"):
        log.headers()
    cut = Log([(1, 10), (40, 30)])
    del cut.data[-200:]
    with pytest.raises(DledgerError) as caught:
        cut.headers()
    assert caught.value.code is Code.STORAGE_FAILED


@pytest.mark.parametrize("error", [None, OSError(5, "EIO")])
def test_damage_ends_the_member_and_not_the_call_alone(error: OSError | None) -> None:
    """I15, I16: as a fetch and a lookup do."""
    log = Log([(1, 10)])
    log.error = error
    log.data[20] ^= 1
    host = Host()
    view = messaging(host, b"", 0, applied_index=1).view
    view.log = cast("CommitLog", log)

    async def run() -> None:
        with pytest.raises(DledgerError) as raised:
            async for _ in log_entries(view, 1):
                pass
        assert raised.value.code is Code.STORAGE_FAILED

    asyncio.run(run())
    assert len(host.failures) == 1
