"""`dledger group why`: why queues of a consumer group make no progress, in a sentence each.

Owns the order of causes: what stops the whole group, then who should have the queue, then what its
consumer waits for. What the coordinator and the home groups say is asked in `group_progress.py`.
"""

from collections.abc import Iterable
from typing import Final

from dledger_broker.cli.values import shown_time
from dledger_proto.v1.delivery_pb2 import DescribeConsumerGroupReply, ReadProgressReply

SILENT_MS: Final = 5_000
"""A connected consumer that says nothing for so long is worth a word."""

Member = DescribeConsumerGroupReply.Member
Queue = DescribeConsumerGroupReply.Queue
Progress = ReadProgressReply.Row


def whole_group(found: DescribeConsumerGroupReply) -> list[str]:
    """Return what keeps all queues from being consumed, and what is wrong with the deal."""
    sentences: list[str] = []
    if found.group.settings.paused:
        sentences.append("the settings of the group pause it")
    if not found.members:
        sentences.append("nobody consumes: the group has no consumers")
    elif not any(member.connected for member in found.members):
        sentences.append("no consumer is connected to the coordinator's leader")
    return [*sentences, *found.problems]


def queue_sentence(
    found: DescribeConsumerGroupReply, queue: Queue | None, row: Progress, paused: str
) -> str:
    """Return why a queue in which records wait makes no progress; what is known of it, else.

    `queue` is None when nobody has it and nobody should.
    """
    if paused:
        return f"the group is paused in this broker group: {paused}"
    if queue is None:
        return "no consumer was dealt this queue"
    since = shown_time(queue.since_ms)
    if queue.holder != queue.target:
        after = f"goes to {queue.target}" if queue.target else "is nobody's"
        return f"waits for {queue.holder} to give it back since {since}; then it {after}"
    if row.epoch < queue.epoch:
        return f"{queue.holder} was granted it at {since}, and has not claimed it yet"
    away = _away(found.members, queue.holder)
    if away:
        return f"{queue.holder} has it, and {away}"
    later = [each for each in row.suspended if each.until_ms > found.now_ms]
    if later:
        first = min(later, key=lambda each: each.offset)
        until = shown_time(first.until_ms)
        return f"offset {first.offset} failed {first.attempts} times, and waits until {until}"
    last = f"last commit {shown_time(row.committed_ms)}" if row.committed_ms else "no commit yet"
    return f"{queue.holder} works on it: {last}"


def _away(members: Iterable[Member], name: str) -> str:
    for member in members:
        if member.id == name and not member.connected:
            return f"is not connected since {member.silent_ms / 1_000:.1f} s"
        if member.id == name and member.silent_ms > SILENT_MS:
            return f"says nothing since {member.silent_ms / 1_000:.1f} s"
    return ""
