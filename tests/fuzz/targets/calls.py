"""Targets: what callers send to a member or a name server, and its errors on the way back."""

import struct
from collections.abc import Sequence
from typing import Any, Final

import grpc

from dledger.state.commands.registry import decode
from dledger.types import EntryKind
from dledger_broker.cluster.topic_pages import _after
from dledger_broker.read.explain import story_at
from dledger_broker.read.lookups import CURSOR, KeyQuestion
from dledger_broker.read.story import Moment, decode_cursor, encode_cursor
from dledger_broker.rpc import calls
from dledger_broker.rpc.table import ROWS
from dledger_client._core.routes import topic_route
from dledger_namesrv.intake import check_registration
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import status
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import peers_pb2
from dledger_proto.v1.routes_pb2 import Registration
from tests.fuzz.target import Target
from tests.fuzz.targets.small import JSON_WORDS
from tests.fuzz.targets.state import driven
from tests.unit.state.groups_kit import BILLING
from tests.unit.state.kit import TOPIC


def _unchecked(_call: object, _request: object) -> None: ...


def _needs_no_member(check: Any) -> bool:
    """Tell whether a check looks at the request alone."""
    return bool(check.__module__ == calls.__name__)


_KINDS: Final[Sequence[tuple[type[Any], Any]]] = (
    *((row.request, row.check if _needs_no_member(row.check) else _unchecked) for row in ROWS),
    *(
        (kind, _unchecked)
        for kind in (
            peers_pb2.ReadLogRequest, peers_pb2.ReadLogPart, peers_pb2.ReadStateRequest,
            peers_pb2.ReadStatePart, peers_pb2.ReadEntriesRequest, peers_pb2.ReadEntriesPart,
        )
    ),
)  # fmt: skip


def _story(data: bytes) -> None:
    """Go on with a story where a caller says that it was, over a real log."""
    index, story = decode_cursor(data)
    queries = driven().machine.queries
    entries = driven().log.entries
    if not 1 <= index <= len(entries):
        return
    for entry in entries[index - 1 :]:
        now = Moment(entry.ref.index, entry.time_ms, entry.ref.position)
        list(story.take(queries, now, None))
        if entry.kind is EntryKind.COMMANDS:
            for payload in entry.payloads:
                list(story.take(queries, now, decode(payload)))
    decode_cursor(encode_cursor(index, story))


def _stories() -> Sequence[bytes]:
    queries = driven().machine.queries
    begun = story_at(queries, TOPIC, 0, 2)
    found = [encode_cursor(1, begun)]
    for entry in driven().log.entries:
        now = Moment(entry.ref.index, entry.time_ms, entry.ref.position)
        list(begun.take(queries, now, None))
        if entry.kind is EntryKind.COMMANDS:
            for payload in entry.payloads:
                list(begun.take(queries, now, decode(payload)))
        found.append(encode_cursor(entry.ref.index, begun))
    return list(dict.fromkeys(found))


def _cursors(data: bytes) -> None:
    size = CURSOR.size
    begins = KeyQuestion(TOPIC, b"key", cursor=data[:size]).begins
    assert begins is None or len(data) >= size
    _after(pb.ListTopicsRequest(cursor=data))


def _call(data: bytes) -> None:
    """Take a request as a member does: read it, then see whether its work is bounded."""
    kind, check = _KINDS[data[0] % len(_KINDS) if data else 0]
    check(None, status.parsed(kind, data[1:]))


def _call_seeds() -> Sequence[bytes]:
    said = {
        pb.QueueOffsetsRequest: pb.QueueOffsetsRequest(),
        peers_pb2.ReadLogRequest: peers_pb2.ReadLogRequest(from_index=5, max_bytes=6),
        peers_pb2.ReadStatePart: peers_pb2.ReadStatePart(dump=b"d", size=9, offset=1, chunk=b"c"),
    }
    kinds = [kind for kind, _ in _KINDS]
    return [
        bytes((kinds.index(kind),)) + each.SerializeToString() for kind, each in said.items()
    ] + [bytes((place,)) + struct.pack("<BBQ", 9, 1, 5) for place in range(len(kinds))]


def _registration(data: bytes) -> None:
    """Take a registration as a name server does, and its topics as a client does."""
    registration = status.parsed(Registration, data)
    check_registration(registration)
    for topic in registration.topics:
        topic_route(topic)


def _registrations() -> Sequence[bytes]:
    topic = pb.Topic(
        id=TOPIC, name="orders", read_queues=4, write_queues=4, permission=6, control_index=3
    )
    topic.layout.add(group="g1", queues=4)
    said = Registration(
        cluster="c", group="g1", member="a", leader="a", address="h:1", peer_address="h:2", term=3,
        applied_index=9, configured_members=["a", "b"], topics=[topic],
    )  # fmt: skip
    return [said.SerializeToString(), Registration().SerializeToString()]


class _Failed(grpc.RpcError):
    """A failed call, as gRPC hands it out."""

    def __init__(self, number: bytes, hint: bytes) -> None:
        self._said = ((status.CODE_KEY, number.decode(errors="replace")), (status.HINT_KEY, hint))

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "it failed"

    def trailing_metadata(self) -> Any:
        return self._said


def _failure(data: bytes) -> None:
    number, _, hint = data.partition(b"\n")
    error = status.from_rpc_error(_Failed(number, hint))
    assert error.code is not Code.OK
    status.trailing_metadata(error)


TARGETS: Final = (
    Target(
        "story-cursor", _story, (ValueError,), _stories,
        ("dledger_broker.read.story:decode_cursor",),
        tokens=(*JSON_WORDS, TOPIC.hex().encode(), BILLING.hex().encode(), b"-9" * 9, b"9" * 19),
        multiple=512, tries=600,
    ),
    Target(
        "cursors", _cursors, (DledgerError,), lambda: [bytes(24), bytes(12), b"\xff" * 24],
        ("dledger_broker.read.lookups:KeyQuestion.begins",
         "dledger_broker.cluster.topic_pages:_after"),
        tries=200,
    ),
    Target(
        "call", _call, (DledgerError,), _call_seeds,
        ("dledger_proto.rpc.status:parsed", "dledger_broker.rpc.table:ROWS"),
    ),
    Target(
        "registration", _registration, (DledgerError,), _registrations,
        ("dledger_namesrv.intake:check_registration",), multiple=64,
    ),
    Target(
        "failure", _failure, (), lambda: [b"5\nhint", b"1000\n", b"\n", b"0\n"],
        ("dledger_proto.rpc.status:from_rpc_error",), tokens=("²".encode(), b"9" * 5_000),
        tries=300,
    ),
)  # fmt: skip
