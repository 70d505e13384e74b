"""What a member says about itself in one group (D19)."""

from dledger.raft.api import GroupStatus
from dledger.types import DiskRoom, MemberId
from dledger_broker.group.group_view import GroupView
from dledger_proto import __version__
from dledger_proto.v1 import broker_pb2 as pb


def status_reply(view: GroupView, flush_mode: str, topics_problem: str = "") -> pb.StatusReply:
    """Return what this member knows at this moment."""
    names, log, machine = view.names, view.log, view.machine
    status = view.host.group.status()
    return pb.StatusReply(
        cluster=names.cluster,
        group=names.group,
        member=names.member,
        role=status.role.value,
        term=status.term,
        leader=status.leader or "",
        leader_address=view.leader_address(),
        first_index=status.first_index,
        last_index=status.last_index,
        durable_index=status.durable_index,
        commit_index=status.commit_index,
        applied_index=machine.applied_index,
        first_position=log.first_position,
        last_position=log.last_position,
        digest=machine.digest,
        flush_mode=flush_mode,
        format_level=machine.format_level,
        group_id=status.group_id,
        incarnation=status.incarnation,
        reason=status.reason,
        members=_members(view, status),
        control_group=names.is_control,
        disk_low=log.disk_room is not DiskRoom.ENOUGH,
        clock_offset_ms=status.clock_offset_ms,
        clock_off=status.clock_is_off,
        version=__version__,
        topics_problem=topics_problem,
    )


def _members(view: GroupView, status: GroupStatus) -> list[pb.MemberProgress]:
    """Return each configured member: how far it is, and how long it is silent for this member."""
    names, now = view.names, view.clock.monotonic()
    silences = view.host.silences
    peers = {peer.member: peer for peer in status.peers}
    members: list[pb.MemberProgress] = []
    for member, address in names.clients.items():
        peer = peers.get(MemberId(member))
        if peer is None:
            own = member == names.member
            silence = 0.0 if own else silences.of(MemberId(member), now)
            members.append(
                pb.MemberProgress(
                    member=member,
                    address=address,
                    connected=own,
                    match_index=status.durable_index if own else 0,
                    next_index=status.last_index + 1 if own else 0,
                    incarnation=status.incarnation if own else "",
                    silent_ms=round(silence * 1_000),
                )
            )
            continue
        members.append(
            pb.MemberProgress(
                member=member,
                address=address,
                connected=peer.connected,
                match_index=peer.match_index,
                next_index=peer.next_index,
                inflight_bytes=peer.inflight_bytes,
                incarnation=peer.incarnation,
                quarantined=peer.quarantined,
                refused=peer.refused,
                silent_ms=round(silences.of(MemberId(member), now) * 1_000),
                clock_offset_ms=peer.clock_offset_ms,
            )
        )
    return members
