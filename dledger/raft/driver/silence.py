"""Since when there is no link to a peer, for status. Pure: time is an argument, in seconds."""

from dledger.types import MemberId


class Silences:
    """Follows the links of a host. Before its first link a peer is silent since the start."""

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._since: dict[MemberId, float | None] = {}

    def link_up(self, peer: MemberId) -> None:
        """There is a link."""
        self._since[peer] = None

    def link_down(self, peer: MemberId, now: float) -> None:
        """There is none any more."""
        self._since[peer] = now

    def of(self, peer: MemberId, now: float) -> float:
        """Return for how many seconds there is no link; 0 while there is one."""
        since = self._since.get(peer, self._started_at)
        return 0.0 if since is None else now - since
