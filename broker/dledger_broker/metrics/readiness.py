"""Whether the member serves, in a sentence when it does not.

Owns the rule of `/readyz` and of gRPC's health service: each group of the process has a leader, has
applied what its log held when the process began, and is not in quarantine; the process is not
ending. Not: liveness. A process that is alive and not ready must not be restarted for it.
"""

from dledger.raft.api import Role
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.admission import AdmissionControl


class Readiness:
    """Follows the groups of one process."""

    def __init__(self, admission: AdmissionControl) -> None:
        self._admission = admission
        self._views: list[GroupView] = []
        self._behind: dict[str, int] = {}
        """By group: the last entry of its log when the process began, until it is applied."""

    def follow(self, view: GroupView) -> None:
        """Take in a group that was just opened."""
        self._views.append(view)
        self._behind[view.names.group] = view.log.last_index

    def not_ready(self) -> str:
        """Return why the member does not serve; empty: it does."""
        if self._admission.draining:
            return "the member is ending"
        if not self._views:
            return "the groups are being opened"
        return "; ".join(filter(None, map(self._why_not, self._views)))

    def _why_not(self, view: GroupView) -> str:
        group, leadership = view.names.group, view.host.leadership
        if leadership.role not in (Role.LEADER, Role.FOLLOWER):
            return f"{group}: the member is {leadership.role.value}"
        if leadership.leader is None:
            return f"{group}: no leader is known in term {leadership.term}"
        behind = self._behind.get(group)
        if behind is None:
            return ""
        # A new leader may have cut the end that was never committed: then less has to be applied.
        wanted, applied = min(behind, view.log.last_index), view.machine.applied_index
        if applied < wanted:
            return f"{group}: applied up to entry {applied} of {wanted}"
        del self._behind[group]
        return ""
