"""`dledger group lag`, `why` and `resume`: how far a consumer group is, and its pauses."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import typer

from dledger_broker.cli.client import open_admin
from dledger_broker.cli.cluster.consumer_groups import add_objects
from dledger_broker.cli.cluster.coordinator import described, leaders
from dledger_broker.cli.cluster.group_why import queue_sentence, whole_group
from dledger_broker.cli.cluster.topics import QueueBounds, queue_bounds
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.output import JsonFlag, note, print_rows
from dledger_broker.cli.values import shown_time
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import PROGRESS_PER_CALL_MAX
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.v1.broker_pb2 import QueueRef
from dledger_proto.v1.delivery_pb2 import (
    NudgeConsumersRequest,
    ReadProgressReply,
    ReadProgressRequest,
    ResumeGroupRequest,
)
from dledger_proto.v1.delivery_pb2_grpc import DeliveryStub

COLUMNS: Final = (
    "topic", "queue", "floor", "maximum", "lag", "lag_bytes", "lag_seconds", "expires_seconds",
    "lost", "done_above", "holder", "committed",
)  # fmt: skip
GroupName = Annotated[str, typer.Argument(help="Name of the consumer group.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Create, list, change, delete, watch consumer groups.", no_args_is_help=True
    )
    add_objects(group)
    group.command()(lag)
    group.command()(why)
    group.command()(resume)
    app.add_typer(group, name="group")


def lag(
    name: GroupName,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Of this topic (repeatable); default: all it consumes."),
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show what waits for a consumer group: messages, bytes, and since when, for each queue.

    expires_seconds: when the retention of the topic deletes the first message that waits. lost: how
    many above its offset were deleted before the group was done with them; the next commit ends it.

    Without --topic: the topics that its consumers have now, and the group's own retries. Of a group
    without consumers: all topics in which it has got anywhere.
    """
    with Cluster(name_servers, timeout) as cluster:
        asked = topics or consumed(cluster, name, name_servers, timeout)
        rows, paused = lag_of(cluster, name, asked)
    for group, why in paused.items():
        note(f"paused in group {group}: {why}; go on with: dledger group resume {name}")
    print_rows(rows, COLUMNS, as_json=as_json, empty="no queues")


def why(
    name: GroupName,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Say why queues of a consumer group make no progress: a sentence for each that has a lag."""
    rows: list[dict[str, object]] = []
    with Cluster(name_servers, timeout) as cluster:
        found = described(cluster, name)
        known = {(queue.topic, queue.queue): queue for queue in found.queues}
        topics = sorted({topic for topic, _ in known} | {each.topic for each in found.unassigned})
        for topic in topics:
            for queues, reply in _progress(cluster, name, topic):
                shown = zip(queues, reply.rows, _rows(topic, queues, reply), strict=True)
                for bounds, row, lag_row in shown:
                    if lag_row["lag"] != 0:
                        queue = known.get((topic, bounds.queue))
                        sentence = queue_sentence(found, queue, row, reply.paused)
                        rows.append({**lag_row, "why": sentence})
    for sentence in whole_group(found):
        note(f"{name}: {sentence}")
    rows.sort(key=lambda row: (str(row["topic"]), int(str(row["queue"]))))
    print_rows(rows, ("topic", "queue", "lag", "why"), as_json=as_json, empty="nothing waits")


def resume(
    name: GroupName,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Let a consumer group go on that a wave of failures has paused; say why it was paused."""
    rows: list[dict[str, object]] = []
    with Cluster(name_servers, timeout) as cluster:
        for route in list(cluster.routes().groups):
            reply = cluster.call(
                lambda channel: DeliveryStub(channel).ResumeGroup,
                ResumeGroupRequest(consumer_group=name),
                group=route.group,
                write=True,
            )
            if reply.why:
                rows.append({"group": route.group, "why": reply.why})
        told = nudge(cluster, name)
    note(f"{told} consumers were told")
    print_rows(rows, ("group", "why"), as_json=as_json, empty=f"{name} was not paused")


def nudge(cluster: Cluster, name: str) -> int:
    """Have the consumers of a group claim their queues again; return how many were told.

    A name that is no consumer group's has none. Consumers that nobody tells hear of a reset by
    their next commit.
    """
    told = 0
    for address, group in leaders(cluster):
        try:
            told += cluster.ask(
                address,
                group,
                lambda channel: DeliveryStub(channel).NudgeConsumers,
                NudgeConsumersRequest(name=name),
                write=False,
            ).told
        except DledgerError:
            continue
    return told


def lag_of(
    cluster: Cluster, name: str, topics: Iterable[str]
) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Return a row for each queue of these topics, and why broker groups pause the group."""
    rows: list[dict[str, object]] = []
    paused: dict[str, str] = {}
    for topic in topics:
        for queues, reply in _progress(cluster, name, topic):
            rows += _rows(topic, queues, reply)
            if reply.paused:
                paused[queues[0].group] = reply.paused
    rows.sort(key=lambda row: (str(row["topic"]), int(str(row["queue"]))))
    return rows, paused


def consumed(cluster: Cluster, name: str, name_servers: str, timeout: float) -> list[str]:
    """Return the topics of a consumer group: those of its consumers, or else of its progress."""
    found = described(cluster, name)
    topics = {queue.topic for queue in found.queues if queue.topic}
    if not found.members:
        with open_admin(name_servers, timeout) as admin:
            topics |= set(admin.topics_of_group(name))
        cluster.restart_clock()
    return sorted(topics | {RETRY_TOPIC_PREFIX + name})


def _progress(
    cluster: Cluster, name: str, topic: str
) -> Iterator[tuple[Sequence[QueueBounds], ReadProgressReply]]:
    """Yield the queues of a topic, those of one broker group at a time, and how far they are."""
    queues = queue_bounds(cluster, cluster.topic(topic))
    for group in dict.fromkeys(each.group for each in queues):
        mine = [each for each in queues if each.group == group]
        for at in range(0, len(mine), PROGRESS_PER_CALL_MAX):
            portion = mine[at : at + PROGRESS_PER_CALL_MAX]
            refs = [QueueRef(topic=topic, queue=each.queue) for each in portion]
            reply = cluster.call(
                lambda channel: DeliveryStub(channel).ReadProgress,
                ReadProgressRequest(consumer_group=name, queues=refs),
                group=group,
                write=False,
            )
            yield portion, reply


def _rows(
    topic: str, queues: Sequence[QueueBounds], reply: ReadProgressReply
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for bounds, row in zip(queues, reply.rows, strict=True):
        if row.code != Code.OK:
            raise DledgerError(Code(row.code), row.detail)
        has_floor = row.floor >= 0
        done_above = row.maximum - max(row.floor, row.minimum) - row.waiting
        oldest = max(reply.now_ms - row.oldest_ms, 0) if row.oldest_ms else 0
        waits = has_floor and row.expires_ms
        rows.append(
            {
                "topic": topic,
                "queue": bounds.queue,
                "group": bounds.group,
                "floor": row.floor if has_floor else None,
                "minimum": row.minimum,
                "maximum": row.maximum,
                "lag": row.waiting if has_floor else None,
                "lag_bytes": row.lag_bytes if has_floor else None,
                "lag_seconds": _seconds(oldest) if has_floor else None,
                "expires_seconds": _seconds(row.expires_ms - reply.now_ms) if waits else None,
                "lost": row.lost if has_floor else None,
                "done_above": done_above if has_floor else 0,
                "holder": row.holder or None,
                "epoch": row.epoch,
                "resets": row.resets,
                "committed": shown_time(row.committed_ms) if row.committed_ms else None,
            }
        )
    return rows


def _seconds(milliseconds: int) -> float:
    """Return a duration as people read it; what is over is 0."""
    return round(max(milliseconds, 0) / 1_000, 1)
