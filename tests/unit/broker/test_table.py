"""Every unary call of the .proto services has one row, and a row says what the .proto says."""

from types import SimpleNamespace
from typing import cast

import pytest
from google.protobuf.descriptor import MethodDescriptor

from dledger_broker.rpc.calls import Call
from dledger_broker.rpc.table import ROWS
from dledger_proto.errors import DledgerError
from dledger_proto.limits import QUEUES_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2, delivery_pb2, routes_pb2, snapshots_pb2

NAME_SERVER_ONLY = "Registry"


def unary_methods() -> dict[str, MethodDescriptor]:
    return {
        f"/{service.full_name}/{method.name}": method
        for module in (broker_pb2, delivery_pb2, routes_pb2, snapshots_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        if service.name != NAME_SERVER_ONLY
        for method in service.methods
        if not method.client_streaming and not method.server_streaming
    }


def test_each_unary_call_has_exactly_one_row() -> None:
    assert sorted(row.path for row in ROWS) == sorted(unary_methods())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_a_row_has_the_messages_of_its_method(row: object) -> None:
    method = unary_methods()[getattr(row, "path")]  # noqa: B009
    assert getattr(row, "request").DESCRIPTOR is method.input_type  # noqa: B009
    assert getattr(row, "reply").DESCRIPTOR is method.output_type  # noqa: B009


@pytest.mark.parametrize(
    ("name", "field", "least"),
    [
        ("QueueOffsets", "queues", 0),
        ("CommitOffsets", "offsets", 0),
        ("ReadOffsets", "queues", 0),
        ("PlanReads", "queues", 1),
        ("HoldAll", "queues", 1),
    ],
)
def test_the_queues_of_one_call_are_bounded(name: str, field: str, least: int) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    call = cast("Call", None)
    for count in (least, QUEUES_PER_CALL_MAX):
        row.check(call, SimpleNamespace(**{field: range(count)}))
    for count in (QUEUES_PER_CALL_MAX + 1, *range(least)):
        with pytest.raises(DledgerError, match=f"INVALID_ARGUMENT: {count} {field} in one call"):
            row.check(call, SimpleNamespace(**{field: range(count)}))
