"""Answers of members as values that users see."""

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from dledger_client._core.routes import RouteTable
from dledger_client._shell.wire import failure
from dledger_client.errors import code_of, error_of
from dledger_client.model import FoundRecord, MemberProgress, MemberStatus, QueueHold
from dledger_proto.batch.codec import BatchView, Record, check_envelope
from dledger_proto.errors import DledgerError
from dledger_proto.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


def found_records(rows: Iterable[pb.FoundRecord], routes: RouteTable) -> list[FoundRecord]:
    """Return the records that lookups found; one that cannot be decoded says why in `error`."""
    found: list[FoundRecord] = []
    for row in rows:
        record: Record | None = None
        message_id, error = b"", None
        if row.code:
            place = f"{row.topic_id.hex()}/{row.queue} offset {row.offset}"
            error = error_of(code_of(row.code), f"{place}: {row.detail}")
        else:
            try:
                view = BatchView(row.batch, check_envelope(row.batch))
                record, message_id = view.record(0), view.message_id(0)
            except DledgerError as bad:
                raise failure(bad, write=False) from None
        topic = routes.topic_by_id(row.topic_id)
        found.append(
            FoundRecord(
                topic=topic.name if topic is not None else "",
                topic_id=row.topic_id,
                queue=row.queue,
                offset=row.offset,
                store_time_ms=row.store_time_ms,
                message_id=message_id,
                content=record,
                error=error,
            )
        )
    return found


def hold_of(row: pb.ListHoldsReply.Hold, group: str) -> QueueHold:
    """Return a hold that a member of `group` lists."""
    return _told(QueueHold, row, group=group)


def status_of(reply: pb.StatusReply, address: str) -> MemberStatus:
    """Return what a member says about itself."""
    return _told(
        MemberStatus,
        reply,
        address=address,
        members=tuple(map(_progress_of, reply.members)),
        is_control_group=reply.control_group,
        is_disk_low=reply.disk_low,
        is_clock_off=reply.clock_off,
    )


def _progress_of(row: pb.MemberProgress) -> MemberProgress:
    return _told(
        MemberProgress,
        row,
        is_connected=row.connected,
        is_quarantined=row.quarantined,
        clock_offset_ms=row.clock_offset_ms if row.HasField("clock_offset_ms") else None,
    )


def _told(kind: type[Value], said: Message, **given: object) -> Value:
    """Return a value: its fields are `given`, or called as in the message that a member sent."""
    names = [each.name for each in fields(kind) if each.name not in given]
    return kind(**given, **{name: getattr(said, name) for name in names})
