"""What the leader of a group does by itself: the closed list of its duties. Pure.

A duty looks at the time and the state, and gives a command to propose. The upkeep of a member
(`process.upkeep`) and the simulation drive the same duties: both ask each duty again and again,
propose what it gives, and then ask for the rest.
"""

from math import inf

from dledger_broker.group.duty import Duty
from dledger_broker.group.expiry import ProducerExpiry
from dledger_broker.group.forgetting import TopicForgetting


def duties(producer_expiry_ms: int, *, period_max: float = inf) -> tuple[Duty, ...]:
    """Return the duties of one member in one group; no period is above `period_max` seconds."""
    every = (ProducerExpiry(producer_expiry_ms), TopicForgetting())
    for duty in every:
        duty.period = min(duty.period, period_max)
    return every
