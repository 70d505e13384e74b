"""`dledger offsets`, `trim`, `transfer`: offsets of consumers, trimming, leadership."""

from collections.abc import Collection, Sequence
from threading import Event
from typing import Annotated

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.cluster.group_progress import nudge
from dledger_broker.cli.cluster.topics import QueueBounds, TopicName, queue_bounds
from dledger_broker.cli.connect import (
    AGAIN_SECONDS,
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    queue_owner,
)
from dledger_broker.cli.output import JsonFlag, bad_input, print_rows
from dledger_broker.cli.values import parse_time
from dledger_proto.errors import MEANINGS, Code, DledgerError
from dledger_proto.limits import OFFSET_MAX
from dledger_proto.v1.broker_pb2 import (
    CommitOffsetsRequest,
    GroupOffset,
    LiftQuarantineRequest,
    OffsetByTimeRequest,
    QueueRef,
    ReadOffsetsRequest,
    TransferLeadershipRequest,
    TrimRequest,
)
from dledger_proto.v1.broker_pb2_grpc import AdminStub, BrokerStub

QueueOption = Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Only this queue.")]


def offsets(
    topic: TopicName,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Consumer group whose offsets to show.")
    ] = "",
    queue: QueueOption = None,
    at: Annotated[
        str, typer.Option("--at", help="Show the first offset stored at this time or later.")
    ] = "",
    reset: Annotated[
        str,
        typer.Option(
            "--reset",
            help="Move the consumer group: beginning, end, NUMBER, +NUMBER, -NUMBER or TIME.",
        ),
    ] = "",
    like: Annotated[
        str, typer.Option("--like", help="Move the consumer group to where this one is.")
    ] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show a topic's offsets, by time, and of a consumer group; or reset the consumer group's.

    TIME is like 2026-01-31T12:00:00 (local) or 2026-01-31T12:00:00Z; it leads to the first message
    stored then or later. +100 and -100 move the consumer group by so many messages, as far as there
    are any; "end" skips its backlog. Consumers that run begin at the new offsets, and none commits
    over them.
    """
    if (reset or like) and not group:
        bad_input(f"{'--reset' if reset else '--like'} needs a consumer group", "give --group")
    if reset and like:
        bad_input("--reset and --like are given", "give one of them")
    with Cluster(name_servers, timeout) as cluster:
        found = cluster.topic(topic)
        queues = [each for each in queue_bounds(cluster, found) if queue in {None, each.queue}]
        if not queues:
            queue_owner(found, queue or 0)
        rows = [each.row() for each in queues]
        if at:
            time_ms = parse_time(at, "--at")
            for each, row in zip(queues, rows, strict=True):
                row["offset_at"] = _offset_by_time(cluster, topic, each, time_ms)
        if reset or like:
            _reset(cluster, topic, group, queues, reset, like)
        if group:
            for each, row in zip(queues, rows, strict=True):
                row |= _committed(cluster, topic, group, each)
    columns = ["queue", "group", "minimum", "maximum", "records"]
    columns += ["offset_at"] if at else []
    columns += ["committed", "lag"] if group else []
    print_rows(rows, columns, as_json=as_json)


def trim(
    topic: TopicName,
    queue: Annotated[int, typer.Option("--queue", "-q", min=0, help="The queue.")],
    offset: Annotated[
        int, typer.Option(min=0, max=OFFSET_MAX, help="New minimum; messages below it are deleted.")
    ],
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete the messages of a queue below an offset; print the queue's new minimum.

    A hold at a lower offset keeps the messages from there on: `dledger hold list` shows holds. Disk
    space is freed when no other message needs it.
    """
    ask(
        f"queue {queue} of topic {topic} is not trimmed",
        f"Delete all messages of topic {topic}, queue {queue}, below offset {offset}?",
        yes=yes,
    )
    request = TrimRequest(queue=QueueRef(topic=topic, queue=queue), offset=offset)
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(
            lambda channel: AdminStub(channel).Trim,
            request,
            group=queue_owner(cluster.topic(topic), queue),
            write=True,
        )
    row: dict[str, object] = {
        "topic": topic,
        "queue": queue,
        "minimum": reply.minimum,
        "held_by": reply.held_by or None,
        "held_until_ms": reply.held_until_ms or None,
    }
    print_rows([row], ("topic", "queue", "minimum", "held_by"), as_json=as_json)


def transfer(
    target: Annotated[
        str,
        typer.Argument(help="Member that shall lead; default: the one that has most of the log."),
    ] = "",
    group: Annotated[str, typer.Option(help="Broker group; default: the control group.")] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Transfer the leadership of a group to another member. No call fails because of it."""
    with Cluster(name_servers, timeout) as cluster:
        route = cluster.group(group)
        known = [each.member for each in route.members] + [each.member for each in route.silent]
        if target:
            _check_member(target, known, route.group)
        reply = cluster.call(
            lambda channel: AdminStub(channel).TransferLeadership,
            TransferLeadershipRequest(target=target),
            group=route.group,
            write=True,
        )
        leader, term = reply.leader, reply.term
        if not leader:
            leader, term = _leader_of_term(cluster, route.group, term)
    row = {"group": route.group, "leader": leader, "term": term}
    print_rows([row], ("group", "leader", "term"), as_json=as_json)


def _check_member(member: str, known: Collection[str], group: str) -> None:
    if member not in known:
        bad_input(f"group {group} has no member {member!r}", f"known members: {', '.join(known)}")


def _leader_of_term(cluster: Cluster, group: str, term: int) -> tuple[str, int]:
    """Return the new leader and its term after the old leader resigned.

    The name server hears of it at once; UNKNOWN_OUTCOME when it does not within the timeout.
    """
    pause = Event()
    while True:
        route = cluster.group(group)
        if route.leader and route.term >= term:
            return route.leader, route.term
        if cluster.is_late():
            raise DledgerError(
                Code.UNKNOWN_OUTCOME,
                f"leadership of {group} was given up before term {term}, but no new leader was "
                "heard of in time",
            )
        pause.wait(AGAIN_SECONDS)
        cluster.routes(refresh=True)


def lift_quarantine(
    member: Annotated[str, typer.Argument(help="The quarantined member.", show_default=False)],
    accept: Annotated[
        str,
        typer.Option(
            "--accept", help="A sentence that accepts the risk; give any text to see the sentence."
        ),
    ],
    group: Annotated[str, typer.Option(help="Broker group; default: the control group.")] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """End a member's quarantine although another member is gone. Can lose messages.

    A quarantine ends by itself once every other member has answered. Use this command when one of
    them will never come back.
    """
    # Imported here: the group's machinery is not worth loading for any other command.
    from dledger.raft.group import RISK_SENTENCE

    if accept != RISK_SENTENCE:
        bad_input(f"--accept: {accept}", f'must be exactly "{RISK_SENTENCE}"')
    with Cluster(name_servers, timeout) as cluster:
        route = cluster.group(group)
        addresses = {known.member: known.address for known in route.members}
        _check_member(member, addresses, route.group)
        request = LiftQuarantineRequest(member=member, i_accept_possible_loss=accept)
        cluster.ask(  # only the quarantined member itself can be told
            addresses[member],
            route.group,
            lambda channel: AdminStub(channel).LiftQuarantine,
            request,
            write=True,
        )
    row = {"group": route.group, "member": member, "lifted": True}
    print_rows([row], ("group", "member", "lifted"), as_json=as_json)


def _offset_by_time(cluster: Cluster, topic: str, bounds: QueueBounds, time_ms: int) -> int:
    request = OffsetByTimeRequest(queue=QueueRef(topic=topic, queue=bounds.queue), time_ms=time_ms)
    return cluster.call(
        lambda channel: BrokerStub(channel).OffsetByTime, request, group=bounds.group, write=False
    ).offset


def _committed(
    cluster: Cluster, topic: str, consumer_group: str, bounds: QueueBounds
) -> dict[str, object]:
    """Return the consumer group's committed offset of a queue and its lag, for the queue's row."""
    committed = _committed_offset(cluster, topic, consumer_group, bounds)
    if committed < 0:
        return {"committed": None, "lag": None}
    return {"committed": committed, "lag": bounds.maximum - committed}


def _committed_offset(
    cluster: Cluster, topic: str, consumer_group: str, bounds: QueueBounds
) -> int:
    request = ReadOffsetsRequest(
        consumer_group=consumer_group, queues=[QueueRef(topic=topic, queue=bounds.queue)]
    )
    reply = cluster.call(
        lambda channel: BrokerStub(channel).ReadOffsets, request, group=bounds.group, write=False
    )
    return reply.offsets[0].offset


def _reset(
    cluster: Cluster,
    topic: str,
    consumer_group: str,
    queues: Sequence[QueueBounds],
    to: str,
    like: str,
) -> None:
    """Set the group's offset of every queue; set none when one of them is out of range.

    Queues are left as they are in which the group that is followed, or moved by a delta, has no
    offset.
    """
    offsets = [
        _committed_offset(cluster, topic, like, bounds)
        if like
        else _reset_target(cluster, topic, consumer_group, bounds, to)
        for bounds in queues
    ]
    for (queue, group, *_), offset in zip(queues, offsets, strict=True):
        if offset < 0:
            continue
        target = GroupOffset(queue=QueueRef(topic=topic, queue=queue), offset=offset)
        request = CommitOffsetsRequest(consumer_group=consumer_group, offsets=[target], reset=True)
        reply = cluster.call(
            lambda channel: BrokerStub(channel).CommitOffsets, request, group=group, write=True
        )
        code = Code(reply.codes[0])
        if code is not Code.OK:
            raise DledgerError(code, f"queue {queue}: {MEANINGS[code].sentence}")
    nudge(cluster, consumer_group)


def _reset_target(
    cluster: Cluster, topic: str, consumer_group: str, bounds: QueueBounds, to: str
) -> int:
    """Return where a queue is set to; -1: nowhere, because there is no offset to move from."""
    queue, _, minimum, maximum = bounds
    if to == "beginning":
        return minimum
    if to == "end":
        return maximum
    if to[:1] in ("+", "-") and to[1:].isascii() and to[1:].isdigit():
        committed = _committed_offset(cluster, topic, consumer_group, bounds)
        return committed if committed < 0 else min(max(committed + int(to), minimum), maximum)
    if to.isascii() and to.isdigit():
        if not minimum <= int(to) <= maximum:
            bad_input(f"--reset: {to}, queue {queue} holds {minimum} to {maximum}", "give --queue")
        return int(to)
    return _offset_by_time(cluster, topic, bounds, parse_time(to, "--reset"))
