"""Answers of members as values that users see."""

from collections.abc import Iterable

from dledger_client._core.routes import RouteTable
from dledger_client._shell.wire import failure
from dledger_client.errors import code_of, error_of
from dledger_client.model import FoundRecord, MemberProgress, MemberStatus, QueueHold
from dledger_proto.batch.codec import BatchView, Record, check_envelope
from dledger_proto.errors import DledgerError
from dledger_proto.v1 import broker_pb2 as pb


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
    return QueueHold(
        topic=row.topic,
        topic_id=row.topic_id,
        group=group,
        queue=row.queue,
        owner=row.owner,
        offset=row.offset,
        until_ms=row.until_ms,
    )


def status_of(reply: pb.StatusReply, address: str) -> MemberStatus:
    """Return what a member says about itself."""
    return MemberStatus(
        cluster=reply.cluster,
        group=reply.group,
        member=reply.member,
        address=address,
        role=reply.role,
        term=reply.term,
        leader=reply.leader,
        leader_address=reply.leader_address,
        first_index=reply.first_index,
        last_index=reply.last_index,
        durable_index=reply.durable_index,
        commit_index=reply.commit_index,
        applied_index=reply.applied_index,
        first_position=reply.first_position,
        last_position=reply.last_position,
        digest=reply.digest,
        flush_mode=reply.flush_mode,
        format_level=reply.format_level,
        group_id=reply.group_id,
        incarnation=reply.incarnation,
        reason=reply.reason,
        topics_problem=reply.topics_problem,
        members=tuple(
            MemberProgress(
                member=row.member,
                address=row.address,
                is_connected=row.connected,
                match_index=row.match_index,
                next_index=row.next_index,
                inflight_bytes=row.inflight_bytes,
                incarnation=row.incarnation,
                is_quarantined=row.quarantined,
                clock_offset_ms=row.clock_offset_ms if row.HasField("clock_offset_ms") else None,
            )
            for row in reply.members
        ),
        is_control_group=reply.control_group,
        is_disk_low=reply.disk_low,
        clock_offset_ms=reply.clock_offset_ms,
        is_clock_off=reply.clock_off,
        version=reply.version,
    )
