"""What a member says about itself in one group (D19)."""

from typing import Final

from dledger.raft.api import GroupStatus
from dledger.repair.findings import Findings
from dledger.types import DiskRoom, MemberId
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.head import what_keeps_head
from dledger_proto import __version__
from dledger_proto.v1 import broker_pb2 as pb

LEFT_SHOWN_MAX: Final = 10


def status_reply(
    view: GroupView, flush_mode: str, topics_problem: str = "", *, security: str = "off"
) -> pb.StatusReply:
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
        reason="; ".join(filter(None, (status.reason, view.refill_says(), view.findings.says))),
        members=_members(view, status),
        control_group=names.is_control,
        disk_low=log.disk_room is not DiskRoom.ENOUGH,
        clock_offset_ms=status.clock_offset_ms,
        clock_off=status.clock_is_off,
        version=__version__,
        topics_problem=topics_problem,
        head_kept=what_keeps_head(view, status),
        endangered=view.endangered(),
        disk_free_bytes=log.space.free_bytes,
        scrub=_scrub(view.findings),
        security=security,
    )


def _scrub(findings: Findings) -> pb.ScrubStatus:
    """Return what the newest scrub found, and what is damaged now."""
    newest = findings.scrub
    return pb.ScrubStatus(
        number=newest.number,
        started_ms=newest.started_ms,
        ended_ms=newest.ended_ms,
        read_bytes=newest.read_bytes,
        total_bytes=newest.total_bytes,
        found=newest.found,
        mended=newest.mended,
        left=len(findings.left),
        found_ever=findings.found_ever,
        mended_ever=findings.mended_ever,
        left_says=list(findings.left.values())[:LEFT_SHOWN_MAX],
    )


def _members(view: GroupView, status: GroupStatus) -> list[pb.MemberProgress]:
    """Return each configured member: how far it is, and how long it is silent for this member."""
    names, now = view.names, view.clock.monotonic()
    silences = view.host.silences
    peers = {peer.member: peer for peer in status.peers}
    members: list[pb.MemberProgress] = []
    for member, address in names.clients.items():
        progress = pb.MemberProgress(member=member, address=address)
        members.append(progress)
        if member == names.member:
            progress.connected = True
            progress.match_index = status.durable_index
            progress.next_index = status.last_index + 1
            progress.incarnation = status.incarnation
            continue
        progress.silent_ms = round(silences.of(MemberId(member), now) * 1_000)
        peer = peers.get(MemberId(member))
        if peer is not None:
            progress.connected = peer.connected
            progress.match_index = peer.match_index
            progress.next_index = peer.next_index
            progress.inflight_bytes = peer.inflight_bytes
            progress.incarnation = peer.incarnation
            progress.quarantined = peer.quarantined
            progress.refused = peer.refused
            if peer.clock_offset_ms is not None:
                progress.clock_offset_ms = peer.clock_offset_ms
    return members
