"""What the leader of a group does by itself: the closed list of its duties. Pure.

A duty looks at the time and the state, and gives a command to propose. The upkeep of a member
(`process.upkeep`) asks each duty again and again, proposes what it gives, and then asks for the
rest.
"""

from dledger_broker.group.duty import Duty
from dledger_broker.group.expiry import ProducerExpiry
from dledger_broker.group.forgetting import TopicForgetting


def duties(producer_expiry_ms: int) -> tuple[Duty, ...]:
    """Return the duties of one member in one group."""
    return ProducerExpiry(producer_expiry_ms), TopicForgetting()
