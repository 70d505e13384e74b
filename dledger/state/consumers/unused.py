"""Whether a consumer group is unused in this broker group: nothing here depends on it.

Owns: what keeps a consumer group beside its last use. Not: noting uses (`usage.py`), deleting a
group that nobody uses in any broker group (`dledger_broker.cluster.group_expiry`).
"""

from typing import TYPE_CHECKING

from dledger.state.progress.group import Group, first_queue_of, group_named
from dledger_proto.names import RETRY_TOPIC_PREFIX

if TYPE_CHECKING:
    from dledger.state.state import State


def is_unused(state: "State", group_id: bytes, unused_ms: int, now_ms: int) -> bool:
    """Tell whether a consumer group is certainly unused here for so long, and has no work here.

    Work is: consumers that are joined, retries to come, retries and dead letters that are not done.
    `now_ms`: the leaders' time, by which retries are due.
    """
    topic = state.topics.find(group_id)
    if topic is None or topic.deleted or topic.consumer_group is None:
        return False
    if not state.usage.is_silent(group_id, unused_ms):
        return False
    coordinator = topic.consumer_group.coordinator
    if coordinator == state.group and state.consumers.group(group_id).consumers:
        return False
    group = group_named(state.topics, topic.name.removeprefix(RETRY_TOPIC_PREFIX))
    if group is None or _awaits_retry(state, group_id, now_ms):
        return False
    topics = (group_id, group.settings.dead_letter_topic_id)
    return not any(_has_records(state, group, topic_id) for topic_id in topics)


def _awaits_retry(state: "State", group_id: bytes, now_ms: int) -> bool:
    """Tell whether a failure may still be tried again that no queue of retries has yet."""
    use = state.usage.find(group_id)
    retry_ms = 0 if use is None else use.retry_ms
    due_ms = state.timers.next_due_ms
    # The first timer of all is later: whatever was set for this group has fired.
    return now_ms < retry_ms or (due_ms is not None and due_ms <= retry_ms)


def _has_records(state: "State", group: Group, topic_id: bytes) -> bool:
    """Tell whether this broker group has records of a topic of a group that are not done."""
    topic = state.topics.find(topic_id)
    if topic is None or topic.deleted:
        return True  # the dead letters of a group that is taken over in part
    if all(part.group != state.group for part in topic.layout):
        return False
    queue = state.queues.find(first_queue_of(state.topics, topic_id, state.group))
    row = state.progress.read(group.id, group.name_bytes, queue.id)
    if row is None:
        return queue.minimum < queue.maximum
    return row.waiting(queue.minimum, queue.maximum) > 0
