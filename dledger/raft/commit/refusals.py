"""Whether a proposal is taken now, and why not. Reads only.

Owns: the order of the checks, the bounds of what waits and of what is not committed (L10), and the
refusal of writes when disks are low (I16). Does not own the proposals that were taken
(`proposals.py`), nor how much room a majority has (`replication/leader.py`).
"""

from dledger.raft.commit.proposals import Proposals
from dledger.raft.context import Context
from dledger.raft.membership.hellos import Membership
from dledger.raft.replication.leader import Replication
from dledger.types import DiskRoom, LogIndex
from dledger_proto.errors import Code


class Refusals:
    """Tells why a group takes no proposal."""

    def __init__(
        self,
        context: Context,
        membership: Membership,
        proposals: Proposals,
        replication: Replication,
    ) -> None:
        self._context = context
        self._membership = membership
        self._proposals = proposals
        self._replication = replication
        self.is_draining = False
        """The member takes no new proposals, because it is about to stop."""
        self._tail_seen = (0, 0)
        self._tail_bytes = 0

    def refusal(self, *, frees_space: bool) -> tuple[Code, str] | None:
        """Return code and detail of the refusal of a proposal; None when it is taken."""
        context = self._context
        limits = context.settings
        if not context.formed:
            return Code.NOT_FORMED, self._membership.reason
        if not context.engine.is_leader:
            leader = context.engine.leader
            return (Code.NO_LEADER, "") if leader is None else (Code.NOT_LEADER, leader)
        if self.is_draining:
            return Code.SHUTTING_DOWN, "the member is draining"
        room = context.log.disk_room
        refused_from = DiskRoom.FULL if frees_space else DiskRoom.LOW
        if max(room, self._replication.room) >= refused_from:
            return Code.DISK_FULL, _no_room(room, refused_from)
        waiting_bytes = self._proposals.waiting_bytes
        if waiting_bytes >= limits.waiting_bytes_max:
            limit = limits.waiting_bytes_max
            return Code.BUSY, f"the limit of {limit} bytes that wait for an entry is reached"
        if self._own_tail_bytes() + waiting_bytes >= limits.uncommitted_bytes_max:
            limit = limits.uncommitted_bytes_max
            return Code.BUSY, f"the limit of {limit} uncommitted bytes is reached"
        return None

    def _own_tail_bytes(self) -> int:
        """Return the size of what is in the log and not committed (L10)."""
        context = self._context
        tail = (context.engine.commit_index, context.log.last_index)
        if tail != self._tail_seen:
            self._tail_seen = tail
            self._tail_bytes = context.log.size_between(LogIndex(tail[0] + 1), LogIndex(tail[1]))
        return self._tail_bytes


def _no_room(own_room: DiskRoom, refused_from: DiskRoom) -> str:
    where = "" if own_room >= refused_from else " on too many members"
    mark = "half of the" if refused_from is DiskRoom.FULL else "the"
    return f"free space is below {mark} low-water mark{where}"
