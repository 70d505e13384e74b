"""A story's entries are read once each, wherever a block of the log ends."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.log.errors import DamagedLog
from dledger.state.commands.registry import encode
from dledger.state.progress.claims import ClaimQueues, WantedQueue
from dledger.state.progress.wave import ResumeGroup
from dledger.types import Span
from dledger_broker.read.explain import BLOCK, read_told
from dledger_proto.batch.codec import BATCH_MAGIC
from dledger_proto.entry import KIND_BATCHES, KIND_COMMANDS, frame_entry

START = 1_000
TOLD = encode(ClaimQueues("g", "a", (WantedQueue(b"T" * 16, 0, 1),)))
OTHER = encode(ResumeGroup("g"))


class Log:
    """The bytes of some entries, as a log gives them."""

    def __init__(self, shapes: Sequence[tuple[int, list[bytes]]]) -> None:
        self.data = bytearray()
        self.told: list[int] = []
        self.positions: list[int] = []
        previous = 0
        for number, (kind, payloads) in enumerate(shapes, 1):
            position = START + len(self.data)
            header, previous = frame_entry(
                kind, payloads, index=number, term=3, time_ms=5, position=position,
                previous_crc=previous,
            )  # fmt: skip
            self.data += header + b"".join(payloads)
            self.positions.append(position)
            if TOLD in payloads:
                self.told.append(number)

    def read_span(self, span: Span) -> bytes:
        at = span.position - START
        return bytes(self.data[at : at + span.size])

    def path_of(self, position: int) -> str:
        return "segment"

    def read(self, wanted: frozenset[int] = frozenset()) -> list[int]:
        found: list[int] = []
        position, end = START, START + len(self.data)
        while position < end:
            told, following, index = read_told(self, position, end, wanted)
            assert following > position
            assert [*self.positions, end][index - 1] == following
            found += [each.moment.entry for each in told]
            position = following
        return found


COMMANDS = st.lists(st.sampled_from([TOLD, OTHER]), min_size=1, max_size=4_000)
BATCHES = st.integers(1, 3 * BLOCK).map(lambda size: [BATCH_MAGIC + bytes(8 + size)])
SHAPES = st.lists(
    st.one_of(
        st.tuples(st.just(KIND_COMMANDS), COMMANDS), st.tuples(st.just(KIND_BATCHES), BATCHES)
    ),
    min_size=1,
    max_size=12,
)


@given(SHAPES, st.integers(0, 200))
@settings(deadline=None, max_examples=40)
def test_every_entry_once(shapes: list[tuple[int, list[bytes]]], edge: int) -> None:
    to_the_edge = (KIND_BATCHES, [BATCH_MAGIC + bytes(BLOCK - 84 - edge)])
    log = Log([to_the_edge, *shapes])
    assert log.read() == log.told


def test_an_entry_that_is_wanted_is_told_whatever_it_is() -> None:
    log = Log(
        [
            (KIND_BATCHES, [BATCH_MAGIC + bytes(8)]),
            (KIND_COMMANDS, [OTHER]),
            (KIND_COMMANDS, [OTHER, TOLD]),
        ]
    )
    assert log.read(frozenset(log.positions[:1])) == [1, 3]


def test_damage_is_named() -> None:
    log = Log([(KIND_COMMANDS, [TOLD]), (KIND_COMMANDS, [TOLD])])
    log.data[log.positions[1] - START + 90] ^= 1
    with pytest.raises(DamagedLog, match=str(log.positions[1])):
        log.read()
