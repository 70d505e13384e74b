"""Why the oldest segment of a group's log stays: what an operator asks when a disk fills up (D19).

Owns: the sentences. Not owned: when a segment goes (`dledger.raft.commit.applying`), who keeps a
position (`dledger.state.queues`).
"""

from dledger.raft.api import GroupStatus
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX
from dledger_broker.group.group_view import GroupView


def what_keeps_head(view: GroupView, status: GroupStatus) -> list[str]:
    """Return what keeps the oldest segment; empty: nothing does, or it is the newest.

    Of the queues that begin in it, the first one is named. Only a leader knows how far the other
    members are.
    """
    oldest = view.log.oldest_segment
    if oldest is None:
        return []
    end, last_index = oldest
    queries, now_ms = view.machine.queries, view.host.time_ms or 0
    head = queries.head()
    if not head.was_freed:
        return ["nothing was trimmed, expired or deleted yet: the whole log stays"]
    said: list[str] = []
    if head.needed == head.horizon < end:
        said.append("old records were carried forward up to it, and the next pass goes on there")
    if head.queue is not None and head.horizon <= head.queue_position < end:
        topic, number, minimum = head.queue
        said.append(f"queue {topic.name}/{number} begins in it, at offset {minimum}")
        rows, _ = queries.holds(topic.topic_id, number, b"", HOLDS_PER_QUEUE_MAX)
        said += [
            f"{row.owner} holds {topic.name}/{number} from offset {row.offset} on"
            for row in rows
            if row.offset <= minimum and row.until_ms > now_ms
        ]
    if head.horizon <= head.pinned_position < end:
        said.append("a timer, a retry or a dead letter refers to a message in it")
    if view.machine.saved_index <= last_index:
        said.append("no saved state covers it yet")
    said += [
        f"member {peer.member} has entries up to {peer.match_index} only"
        + (", it is quarantined" if peer.quarantined else "")
        for peer in status.peers
        if peer.match_index <= last_index and status.role.value == "leader"
    ]
    return said
