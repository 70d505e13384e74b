"""Members that answer otherwise than they should: who is left, and what ends a range.

Goal: what one member says of itself never ends a read that another could go on with. Method: small
servers on loopback that each give one answer.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import grpc
import pytest

from dledger_client._core.routes import GroupRoute, Member
from dledger_client._shell import calls
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, InvalidRequest, OffsetOutOfRange
from dledger_client.reading import Hold, Origin, Range, RangeReader, reader
from dledger_client.reading.left import SECONDS, SECONDS_MAX, LeftMembers
from dledger_proto.errors import Code
from dledger_proto.rpc import status
from dledger_proto.rpc.frames import FetchRow, encode_fetch
from dledger_proto.rpc.raw import FETCH
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.proto.samples import TOPIC_ID, make_batch

DEADLINE_SECONDS = 20.0
COLUMNS = ("queue_offset", "body")
WHOLE = Range("t", TOPIC_ID, 2, "g", 7, 10, 100)


def refusal(code: Code, minimum: int) -> bytes:
    return encode_fetch(
        (), (), assignment=0, min_offset=minimum, max_offset=10, next_offset=7, code=code
    )  # fmt: skip


def rows(at: int = 7) -> bytes:
    batch = make_batch()
    row = FetchRow(at, 0, 3, len(batch))
    return encode_fetch([row], [batch], assignment=0, min_offset=0, max_offset=10, next_offset=10)


class Silent:
    """A member that takes a call and says nothing."""

    def __init__(self) -> None:
        self.given_up = Event()
        """The reader has cancelled."""
        self.waited_in_vain = False
        self.calls = 0


class Stale:
    """A member that sends, over and over, what is read already."""


def _answer(
    said: Code | bytes | Silent | Stale, _request: bytes, context: grpc.ServicerContext
) -> Iterator[bytes]:
    if isinstance(said, Code):
        context.set_trailing_metadata(((status.CODE_KEY, str(int(said))),))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
    if isinstance(said, Stale):
        while context.is_active():
            yield rows(4)
        return
    if isinstance(said, Silent):
        said.calls += 1
        context.add_callback(said.given_up.set)
        # Its end would be an answer, too.
        said.waited_in_vain = not said.given_up.wait(DEADLINE_SECONDS)
        return
    yield said


def _hold(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    """Refuse."""
    refused = pb.HoldAllReply(codes=[int(Code.OFFSET_OUT_OF_RANGE)], details=["offset 7, it is 8"])
    return refused.SerializeToString()


@contextmanager
def members(*answers: Code | bytes | Silent | Stale) -> Iterator[Origin]:
    """Run one member for each answer; a reader asks them in this order."""
    servers: list[grpc.Server] = []
    known: list[Member] = []
    for answer in answers:
        server = grpc.server(ThreadPoolExecutor(2))
        _, service, method = FETCH.split("/")
        handler = grpc.unary_stream_rpc_method_handler(partial(_answer, answer))
        methods = {method: handler}
        _, admin, hold = calls.HOLD_ALL.path.split("/")
        holds = {hold: grpc.unary_unary_rpc_method_handler(_hold)}
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(service, methods),
                grpc.method_handlers_generic_handler(admin, holds),
            )
        )
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        known.append(Member(f"m{len(known)}", address, alive=True))
        server.start()
        servers.append(server)
    try:
        group = GroupRoute("g", 1, "", "", tuple(known), control=True)
        yield Origin((), (group,), read_from="any", stall_ms=60_000)
    finally:
        for server in servers:
            server.stop(None)


@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.NO_PERMISSION])
def test_who_has_no_right_hears_it_at_once(code: Code) -> None:
    """The next member would say the same, and so on until the read counts as stalled."""
    with members(code, rows()) as origin, pytest.raises(ClientError) as told:
        offsets(origin)
    assert told.value.code is code


def test_a_secret_that_cannot_be_read_ends_the_read(tmp_path: Path) -> None:
    there = ConnectionConfig(user="ann", secret_file=str(tmp_path / "none"))
    with members(rows()) as origin, pytest.raises(InvalidRequest, match="secret_file"):
        offsets(replace(origin, connection=there))


def offsets(origin: Origin, left: LeftMembers | None = None) -> list[int]:
    with RangeReader(origin, COLUMNS, left or LeftMembers()) as opened:
        batches = list(opened.read(WHOLE))
        assert opened.gaps == []
        return [at for batch in batches for at in batch.column("queue_offset").to_pylist()]


@pytest.mark.parametrize("minimum", [-1, 0, 7])
def test_a_member_that_was_trimmed_while_it_answered_is_left(minimum: int) -> None:
    """Its bounds are from before, so they say of no loss; the next one has the range."""
    with members(refusal(Code.HEAD_TRIMMED, minimum), rows()) as origin:
        assert offsets(origin) == [7, 8, 9]


def test_a_loss_is_a_loss_whoever_tells_it() -> None:
    """A minimum only grows, and by what is committed."""
    with (
        members(refusal(Code.HEAD_TRIMMED, 8), rows()) as origin,
        pytest.raises(OffsetOutOfRange, match="the earliest is 8"),
    ):
        offsets(origin)


@pytest.mark.parametrize(
    ("gone", "left"), [((5, 3), [8, 9]), ((0, 20), []), ((7, 3), []), ((2, 2), [7, 8, 9])]
)
def test_what_is_compacted_is_no_loss(gone: tuple[int, int], left: list[int]) -> None:
    """Whether the range begins with it, ends within it, or consists of it."""
    first, count = gone
    end, batch = first + count, make_batch()
    found = [FetchRow(first, 0, count, 0), FetchRow(end, 0, 3, len(batch))]
    if end < 7:
        found.insert(1, FetchRow(end, 0, 7 - end, 0))
        found[2] = found[2]._replace(base_offset=7)
    frame = encode_fetch(
        found, [batch], assignment=0, min_offset=0, max_offset=20, next_offset=end + 3
    )
    with members(frame) as origin, RangeReader(origin, COLUMNS, LeftMembers()) as opened:
        batches = list(opened.read(WHOLE))
        assert [at for each in batches for at in each.column("queue_offset").to_pylist()] == left
        assert (opened.gaps, opened.compacted) == ([], 3 - len(left))


def test_a_member_that_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream stays open, and nothing would ever come of it; the next one has the range."""
    monkeypatch.setattr(reader, "SILENCE_MS", 500)
    silent = Silent()
    with members(silent, rows()) as origin:
        assert offsets(origin) == [7, 8, 9]
        assert silent.given_up.wait(DEADLINE_SECONDS)
        assert not silent.waited_in_vain


@pytest.mark.timeout(60)
def test_a_member_that_brings_nothing_new_is_left() -> None:
    """It is neither silent nor empty."""
    with members(Stale(), rows()) as origin:
        assert offsets(origin) == [7, 8, 9]


def test_a_member_that_says_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by each range: this reader's, and those of the process's later readers."""
    monkeypatch.setattr(reader, "SILENCE_MS", 300)
    silent, left = Silent(), LeftMembers()
    with members(silent, rows()) as origin:
        with RangeReader(origin, COLUMNS, left) as opened:
            assert [sum(each.num_rows for each in opened.read(WHOLE)) for _ in range(3)] == [3] * 3
        assert offsets(origin, left) == [7, 8, 9]
        assert silent.calls == 1
        assert RangeReader(origin, COLUMNS).left is RangeReader(origin, ()).left


def test_who_was_left_is_asked_last_for_a_while() -> None:
    """All are asked; who fails again waits for longer, who has worked begins anew."""
    left = LeftMembers()
    left.leave("a", 100.0)
    assert left.in_order("abc", 100.0) == ["b", "c", "a"]
    assert left.in_order("abc", 100.0 + SECONDS) == ["a", "b", "c"]
    left.leave("a", 200.0)
    assert left.in_order("abc", 200.0 + SECONDS) == ["b", "c", "a"]
    left.leave("b", 201.0)
    assert left.in_order("abc", 201.0) == ["c", "a", "b"]
    for _ in range(9):
        left.leave("a", 300.0)
    assert left.in_order("abc", 300.0 + SECONDS_MAX - 1) == ["b", "c", "a"]
    assert left.in_order("abc", 300.0 + SECONDS_MAX) == ["a", "b", "c"]
    left.worked("a")
    left.leave("a", 400.0)
    assert left.in_order("abc", 400.0 + SECONDS) == ["a", "b", "c"]


def test_who_tells_of_a_loss_is_not_at_fault() -> None:
    """It goes on behind the gap with whom it would have begun."""
    left = LeftMembers()
    with members(refusal(Code.HEAD_TRIMMED, 8), rows()) as origin:
        accepted = replace(origin, fail_on_data_loss=False)
        with RangeReader(accepted, COLUMNS, left) as opened:
            assert sum(each.num_rows for each in opened.read(WHOLE)) == 2
            assert opened.candidates("g") == list(origin.groups[0].addresses())


@pytest.mark.parametrize(
    ("read_from", "firsts"), [("follower", "b c b c"), ("leader", "a a a a"), ("any", "a b c a")]
)
def test_parallel_readers_begin_with_different_members(read_from: str, firsts: str) -> None:
    """As many with each of those that are asked first; the leader is the last, or the first."""
    members = tuple(Member(name, f"{name}:1", alive=True) for name in "abc")
    group = GroupRoute("g", 1, "a", "a:1", members, control=True)
    found: list[str] = []
    for rotation in range(4):
        origin = Origin((), (group,), read_from, rotation)
        with RangeReader(origin, COLUMNS) as opened:
            order = [address[0] for address in opened.candidates("g")]
        assert sorted(order) == ["a", "b", "c"]
        assert order[-1] == "a" or read_from != "follower"
        found.append(order[0])
    assert " ".join(found) == firsts


def test_a_hold_that_is_refused_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The call itself is answered; the range is read as long as it is there."""
    with members(rows()) as origin, RangeReader(origin, COLUMNS) as opened:
        assert sum(batch.num_rows for batch in opened.read(WHOLE, Hold("job", 7, 60_000))) == 3
    assert "hold refused: OFFSET_OUT_OF_RANGE offset 7, it is 8" in caplog.text
