"""`dledger offsets`, `trim`, `transfer`: offsets of consumers, trimming, leadership."""

import datetime as dt
from threading import Event
from typing import Annotated

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.cluster.topics import TopicName, queue_rows
from dledger_broker.cli.connect import (
    AGAIN_SECONDS,
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    queue_owner,
)
from dledger_broker.cli.output import JsonFlag, bad_input, print_rows
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


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, function in (
        ("offsets", offsets),
        ("trim", trim),
        ("transfer", transfer),
        ("lift-quarantine", lift_quarantine),
    ):
        app.command(name)(function)


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
            "--reset", help="Set the consumer group's offsets: beginning, end, NUMBER or TIME."
        ),
    ] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show a topic's offsets, by time, and of a consumer group; or reset the consumer group's.

    TIME is like 2026-01-31T12:00:00 (local) or 2026-01-31T12:00:00Z.
    """
    if reset and not group:
        bad_input("--reset needs a consumer group", "give --group")
    with Cluster(name_servers, timeout) as cluster:
        found = cluster.topic(topic)
        rows = [row for row in queue_rows(cluster, found) if queue in {None, row["queue"]}]
        if not rows:
            queue_owner(found, queue or 0)
        if at:
            time_ms = parse_time(at, "--at")
            for row in rows:
                row["offset_at"] = _offset_by_time(cluster, topic, row, time_ms)
        if reset:
            _reset(cluster, topic, group, rows, reset)
        if group:
            _add_committed(cluster, topic, group, rows)
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
            lambda channel, left, metadata: AdminStub(channel).Trim(
                request, timeout=left, metadata=metadata
            ),
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
        if target and target not in known:
            bad_input(
                f"group {route.group} has no member {target!r}",
                f"known members: {', '.join(known)}",
            )
        reply = cluster.call(
            lambda channel, left, metadata: AdminStub(channel).TransferLeadership(
                TransferLeadershipRequest(target=target), timeout=left, metadata=metadata
            ),
            group=route.group,
            write=True,
        )
        leader, term = reply.leader, reply.term
        if not leader:
            leader, term = _leader_of_term(cluster, route.group, term)
    row = {"group": route.group, "leader": leader, "term": term}
    print_rows([row], ("group", "leader", "term"), as_json=as_json)


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
        if member not in addresses:
            bad_input(
                f"group {route.group} has no member {member!r}",
                f"known members: {', '.join(addresses)}",
            )
        request = LiftQuarantineRequest(member=member, i_accept_possible_loss=accept)
        cluster.ask(  # only the quarantined member itself can be told
            addresses[member],
            route.group,
            lambda channel, left, metadata: AdminStub(channel).LiftQuarantine(
                request, timeout=left, metadata=metadata
            ),
            write=True,
        )
    row = {"group": route.group, "member": member, "lifted": True}
    print_rows([row], ("group", "member", "lifted"), as_json=as_json)


def parse_time(text: str, option: str) -> int:
    """Return milliseconds since 1970 of an ISO time; end the command when the text is no time."""
    try:
        return round(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):  # no time, or one of the year 1 in a zone east of UTC
        bad_input(f"{option}: {text}, must be a time like 2026-01-31T12:00:00")


def _offset_by_time(cluster: Cluster, topic: str, row: dict[str, object], time_ms: int) -> int:
    queue, group = _queue_of(row)
    request = OffsetByTimeRequest(queue=QueueRef(topic=topic, queue=queue), time_ms=time_ms)
    return cluster.call(
        lambda channel, left, metadata: BrokerStub(channel).OffsetByTime(
            request, timeout=left, metadata=metadata
        ),
        group=group,
        write=False,
    ).offset


def _queue_of(row: dict[str, object]) -> tuple[int, str]:
    queue, group = row["queue"], row["group"]
    assert isinstance(queue, int)
    assert isinstance(group, str)
    return queue, group


def _add_committed(
    cluster: Cluster, topic: str, consumer_group: str, rows: list[dict[str, object]]
) -> None:
    """Add the consumer group's committed offsets and its lag to the rows."""
    for row in rows:
        queue, group = _queue_of(row)
        committed = _read(cluster, group, consumer_group, QueueRef(topic=topic, queue=queue))
        maximum = row["maximum"]
        assert isinstance(maximum, int)
        row["committed"] = committed if committed >= 0 else None
        row["lag"] = maximum - committed if committed >= 0 else None


def _reset(
    cluster: Cluster, topic: str, consumer_group: str, rows: list[dict[str, object]], to: str
) -> None:
    """Set the group's offset of every queue; set none when one of them is out of range."""
    targets = [(*_queue_of(row), _reset_target(cluster, topic, row, to)) for row in rows]
    for queue, group, offset in targets:
        target = GroupOffset(queue=QueueRef(topic=topic, queue=queue), offset=offset)
        code = _set(cluster, group, consumer_group, target)
        if code is not Code.OK:
            raise DledgerError(code, f"queue {queue}: {MEANINGS[code].sentence}")


def _read(cluster: Cluster, group: str, consumer_group: str, queue: QueueRef) -> int:
    request = ReadOffsetsRequest(consumer_group=consumer_group, queues=[queue])
    reply = cluster.call(
        lambda channel, left, metadata: BrokerStub(channel).ReadOffsets(
            request, timeout=left, metadata=metadata
        ),
        group=group,
        write=False,
    )
    return reply.offsets[0].offset


def _set(cluster: Cluster, group: str, consumer_group: str, target: GroupOffset) -> Code:
    request = CommitOffsetsRequest(consumer_group=consumer_group, offsets=[target], reset=True)
    reply = cluster.call(
        lambda channel, left, metadata: BrokerStub(channel).CommitOffsets(
            request, timeout=left, metadata=metadata
        ),
        group=group,
        write=True,
    )
    return Code(reply.codes[0])


def _reset_target(cluster: Cluster, topic: str, row: dict[str, object], to: str) -> int:
    queue, minimum, maximum = row["queue"], row["minimum"], row["maximum"]
    assert isinstance(minimum, int)
    assert isinstance(maximum, int)
    if to == "beginning":
        return minimum
    if to == "end":
        return maximum
    if to.isascii() and to.isdigit():
        if not minimum <= int(to) <= maximum:
            bad_input(f"--reset: {to}, queue {queue} holds {minimum} to {maximum}", "give --queue")
        return int(to)
    return _offset_by_time(cluster, topic, row, parse_time(to, "--reset"))
