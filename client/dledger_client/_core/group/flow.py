"""How much of a queue a consumer has in hand before it takes no more (S102). Pure."""

from dataclasses import dataclass
from typing import Final

from dledger_client._core.group.progress import RANGES_MAX

IN_HAND_MAX: Final = 65_536
"""Records of all queues together: each queue has its share, so none of them starves another."""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds of one queue; the defaults are RocketMQ's."""

    records: int = 1_000
    bytes: int = 100 << 20
    span: int = 2_000
    """From the floor to the newest record in hand."""

    def has_room(self, *, records: int, size: int, span: int, ranges: int, queues: int) -> bool:
        """Return whether more of a queue may be taken, of which so much is in hand."""
        return (
            records < min(self.records, max(1, IN_HAND_MAX // max(1, queues)))
            and size < self.bytes
            and span < self.span
            and ranges < RANGES_MAX
        )
