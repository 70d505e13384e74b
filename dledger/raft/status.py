"""What people, metrics and tests see of a group: one frozen picture, reasons in sentences.

Owns: how the picture is put together. Every fact belongs to the part that it is read from.
"""

from dledger.raft.api import GroupStatus, Role
from dledger.raft.context import Context
from dledger.raft.wiring import Wiring
from dledger.types import DiskRoom, LogIndex, Term


def status_of(context: Context, wiring: Wiring, *, role: Role, stopped: str) -> GroupStatus:
    """Return the picture; `stopped` says why the group stopped, empty while it runs."""
    log, membership, clocks = context.log, wiring.membership, wiring.clocks
    engine = context.engine if context.formed else None
    return GroupStatus(
        role=role,
        term=Term(engine.term if engine else 0),
        leader=engine.leader if engine else None,
        first_index=LogIndex(log.first_index),
        last_index=LogIndex(log.last_index),
        durable_index=LogIndex(log.durable_index),
        commit_index=LogIndex(engine.commit_index if engine else 0),
        applied_index=context.machine.applied_index,
        group_id=membership.group_id,
        incarnation=membership.incarnation.hex(),
        reason="; ".join(reason for reason in _reasons(context, wiring, stopped) if reason),
        peers=wiring.replication.status(membership.recorded, membership.refusals),
        clock_offset_ms=clocks.offset_ms() or 0,
        clock_is_off=clocks.is_off,
    )


def _reasons(context: Context, wiring: Wiring, stopped: str) -> list[str]:
    """Return why the member does not serve, or not well; the first one may be empty."""
    membership = wiring.membership
    reasons = [stopped or membership.reason]
    reasons += [f"{peer} refused: {why}" for peer, why in membership.refusals.items()]
    if context.formed:
        leads = context.engine.is_leader
        reasons += wiring.clocks.describe(context.log.last_time_ms if leads else None)
        if wiring.transfer.nobody_is_right:
            reasons.append(
                "its clock is off, and no caught-up member has a correct clock to lead with"
            )
    if context.durability.hangs(context.now):
        reasons.append("the disk hangs")
    if room := context.log.disk_room:
        share = "half of " if room is DiskRoom.FULL else ""
        reasons.append(f"free disk space is below {share}the low-water mark")
    return reasons
