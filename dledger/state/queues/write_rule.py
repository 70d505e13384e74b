"""Whether a queue takes a batch: the one rule for apply and for the member that proposes (D6, D11).

Pure. Apply decides; a member asks before it proposes, so that most refusals cost no log entry.
"""

from dledger.state.results import Refused
from dledger.state.values import PERMISSION_WRITE, Topic
from dledger_proto.errors import Code


def refusal_to_write(
    topic: Topic | None, topic_id: bytes, queue: int, group: str
) -> Refused | None:
    """Return why a queue of a topic takes no batches in a group; None when it takes them."""
    if topic is None or topic.deleted:
        return Refused(Code.TOPIC_NOT_FOUND, f"no topic has the id {topic_id.hex()}")
    if queue >= topic.write_queues:
        return Refused(
            Code.QUEUE_NOT_FOUND,
            f"topic {topic.name}: queue {queue}, {topic.write_queues} take messages",
        )
    owner = topic.owner_of(queue)
    if owner != group:
        return Refused(
            Code.WRONG_GROUP, f"topic {topic.name}: queue {queue} is held by group {owner}"
        )
    if not topic.permission & PERMISSION_WRITE:
        return Refused(Code.NO_PERMISSION, f"topic {topic.name} does not permit writing")
    return None
