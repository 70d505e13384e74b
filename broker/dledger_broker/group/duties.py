"""What the leader of a group does by itself: the closed list of its duties. Pure.

A duty looks at the time and the state, and gives a command to propose. The upkeep of a member
(`process.upkeep`) asks each duty again and again, proposes what it gives, and then asks for the
rest. Timers are fired by a loop of their own (`timers.firing`), which wakes up when they are due.
"""

from collections.abc import Callable, Sequence

from dledger.state.values import Retention
from dledger_broker.group.duty import Duty
from dledger_broker.group.expiry import ProducerExpiry
from dledger_broker.group.forgetting import TopicForgetting
from dledger_broker.group.retention import RetentionDuty
from dledger_broker.group.widening import GroupWidening


def duties(
    producer_expiry_ms: int,
    retention: Retention,
    broker_groups: Callable[[], Sequence[str]],
    *,
    delete_when_low: bool,
) -> tuple[Duty, ...]:
    """Return the duties of one member in one group.

    `retention` counts for topics that have none of their own; `delete_when_low`: a low disk deletes
    earlier. `broker_groups` tells the control group which there are, other groups nothing.
    """
    return (
        ProducerExpiry(producer_expiry_ms),
        TopicForgetting(),
        GroupWidening(broker_groups),
        RetentionDuty(retention, delete_when_low=delete_when_low),
    )
