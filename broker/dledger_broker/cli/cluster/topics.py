"""`dledger topic`: create, list, describe, update, delete."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, NamedTuple

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    queue_owner,
)
from dledger_broker.cli.output import (
    JsonFlag,
    bad_input,
    print_json,
    print_rows,
    say,
)
from dledger_broker.cli.values import parse_duration, parse_size
from dledger_proto.cleanup import DELETE, bounds_of, cleanup_of
from dledger_proto.limits import (
    OFFSET_MAX,
    QUEUES_PER_TOPIC_MAX,
    RETENTION_BY_KEY,
    RETENTION_DEFAULT,
    RETENTION_FOREVER,
)
from dledger_proto.names import GROUP_TOPIC_PREFIXES
from dledger_proto.v1.broker_pb2 import (
    CreateTopicReply,
    CreateTopicRequest,
    DeleteTopicRequest,
    LayoutPart,
    ListTopicsRequest,
    QueueOffsetsRequest,
    QueueRef,
    Topic,
    TopicReply,
    TopicType,
    UpdateTopicRequest,
)
from dledger_proto.v1.broker_pb2_grpc import AdminStub, BrokerStub

_PERMISSIONS: Final = {"r": 4, "w": 2, "rw": 6}
_COLUMNS: Final = (
    "topic", "type", "layout", "write_queues", "read_queues", "permission", "retention_time",
    "retention_size", "cleanup",
)  # fmt: skip
_BOUNDS: Final[dict[str, int | None]] = {
    "": None, "default": RETENTION_DEFAULT, "forever": RETENTION_FOREVER,
}  # fmt: skip
"""Words for a bound of the retention; the empty one leaves it as it is."""

TopicName = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Create, list, describe, update, delete topics.", no_args_is_help=True)
    for function in (create, describe, update, delete):
        group.command()(function)
    group.command("list")(list_topics)
    app.add_typer(group, name="topic")


def _queues(meaning: str) -> Any:
    """Return the option for a number of queues."""
    return typer.Option(min=0, max=QUEUES_PER_TOPIC_MAX, help=meaning)


def create(
    name: TopicName,
    queues: Annotated[int, _queues("Write queues in each group; 0: the cluster's default.")] = 0,
    read_queues: Annotated[
        int, _queues("Read queues over all groups; 0: as many as write queues.")
    ] = 0,
    permission: Annotated[str, typer.Option(help="rw, r or w.")] = "rw",
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            help="normal; fifo: only messages with an ordering key; delay: only with a delivery "
            "time; priority: each queue of a group is a priority, higher ones overtake.",
        ),
    ] = "normal",
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", help="Only this group (repeatable); default: all groups."),
    ] = None,
    retention_time: Annotated[
        str,
        typer.Option(help="Messages stay for this time: 12h, 7d; forever; default: the cluster's."),
    ] = "default",
    retention_size: Annotated[
        str,
        typer.Option(
            help="Bytes that each queue keeps: 64m, 10g; forever; default: the cluster's."
        ),
    ] = "default",
    cleanup: Annotated[
        str,
        typer.Option(
            help="delete: by retention; compact: the last message of each key stays, for good."
        ),
    ] = DELETE,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Create a topic on every group, or on the named groups."""
    bounds = _bounds(retention_time, retention_size, cleanup)
    request = CreateTopicRequest(
        name=name,
        type=_topic_type(kind),
        write_queues_per_group=queues,
        read_queues=read_queues,
        permission=_permission(permission),
        groups=groups or [],
        retention_ms=bounds[0] or 0,
        retention_bytes=bounds[1] or 0,
    )
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(lambda channel: AdminStub(channel).CreateTopic, request, write=True)
    _print_changed(reply, _COLUMNS, as_json=as_json)


def list_topics(
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    deleted: Annotated[bool, typer.Option("--deleted", help="Show deleted topics, too.")] = False,
    of_groups: Annotated[
        bool,
        typer.Option("--all", help="Show the topics of retries and of dead letters, too."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List all topics but those that consumer groups have for themselves."""
    with Cluster(name_servers, timeout) as cluster:
        topics = all_topics(cluster, ListTopicsRequest(with_deleted=deleted))
    if not of_groups:
        topics = [topic for topic in topics if not topic.name.startswith(GROUP_TOPIC_PREFIXES)]
    rows = sorted(
        map(topic_row if as_json else shown_row, topics), key=lambda row: str(row["topic"])
    )
    columns = (*_COLUMNS, "deleted") if deleted else _COLUMNS
    print_rows(rows, columns, as_json=as_json, empty="no topics")


def all_topics(cluster: Cluster, request: ListTopicsRequest) -> list[Topic]:
    """Read all pages. A topic that changed meanwhile comes again, and its newer row counts."""
    found: dict[bytes, Topic] = {}
    while True:
        reply = cluster.call(lambda channel: AdminStub(channel).ListTopics, request, write=False)
        found.update((topic.id, topic) for topic in reply.topics)
        if not reply.cursor:
            return list(found.values())
        request.cursor = reply.cursor


def describe(
    name: TopicName,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show a topic's layout and the offsets of its queues."""
    with Cluster(name_servers, timeout) as cluster:
        topic = cluster.topic(name)
        queues = [bounds.row() for bounds in queue_bounds(cluster, topic)]
    if as_json:
        print_json(topic_row(topic) | {"queues": queues})
        return
    print_rows([shown_row(topic)], (*_COLUMNS, "id"), as_json=False)
    print_rows(queues, ("queue", "group", "minimum", "maximum", "records"), as_json=False)


def update(
    name: TopicName,
    queues: Annotated[int, _queues("Write queues in each of its groups; 0: unchanged.")] = 0,
    read_queues: Annotated[int, _queues("Read queues over all groups; 0: unchanged.")] = 0,
    permission: Annotated[str, typer.Option(help="rw, r or w; default: unchanged.")] = "",
    retention_time: Annotated[
        str,
        typer.Option(help="As of create; `default` is the cluster's; left out: unchanged."),
    ] = "",
    retention_size: Annotated[
        str,
        typer.Option(help="As of create; `default` is the cluster's; left out: unchanged."),
    ] = "",
    cleanup: Annotated[
        str,
        typer.Option(
            help="As of create; left out: unchanged. With `delete` the topic gets the bounds that "
            "are given, or the cluster's."
        ),
    ] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Change a topic's queues, permission, retention or cleanup.

    Shrink a topic in two steps: lower the write queues, wait until consumers have read the closed
    queues, then lower the read queues. Bulk reads and exports still read closed queues. A queue's
    number stays with its group, and the last queues are closed first: with several groups --queues
    can only go down to a number that each of them had before. Closed queues are opened again before
    new ones are made.
    """
    if not (queues or read_queues or permission or retention_time or retention_size or cleanup):
        bad_input(
            "nothing to change",
            "give --queues, --read-queues, --permission, --retention-time, --retention-size or "
            "--cleanup",
        )
    retention_ms, retention_bytes = _bounds(retention_time, retention_size, cleanup)
    with Cluster(name_servers, timeout) as cluster:
        layout = resized(cluster.topic(name), queues) if queues else []
        request = UpdateTopicRequest(
            name=name,
            permission=_permission(permission) if permission else 0,
            read_queues=read_queues,
            layout=layout,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        reply = cluster.call(lambda channel: AdminStub(channel).UpdateTopic, request, write=True)
    _print_changed(reply, _COLUMNS, as_json=as_json)


def resized(topic: Topic, queues: int) -> list[LayoutPart]:
    """Return a layout in which each group that takes messages has this many write queues.

    The first queues when they are such a layout; else closed ones are opened, and new ones come
    behind all that there are. Ends the command when a group would keep more: queues are closed from
    the last on.
    """
    owners = [part.group for part in topic.layout for _ in range(part.queues)]
    wanted = set(owners[: topic.write_queues])
    held: Counter[str] = Counter()
    for count, group in enumerate(owners, 1):
        held[group] += 1
        if held.keys() == wanted and set(held.values()) == {queues}:
            return _parts(owners[:count])
    for group, has in held.items():
        if has > queues:
            bad_input(
                f"--queues: {queues}, group {group} has had {has}, and queues are closed and "
                "opened in the order of their numbers, whichever group holds them",
                "give more, or create another topic",
            )
    return _parts(owners + [group for group in held for _ in range(queues - held[group])])


def _parts(owners: Iterable[str]) -> list[LayoutPart]:
    return [LayoutPart(group=group, queues=len(list(same))) for group, same in groupby(owners)]


def delete(
    name: TopicName,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a topic and its messages. A new one of this name is another topic."""
    ask(f"topic {name} is not deleted", f"Delete topic {name} and all its messages?", yes=yes)
    request = DeleteTopicRequest(name=name)
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(lambda channel: AdminStub(channel).DeleteTopic, request, write=True)
    _print_changed(reply, (*_COLUMNS, "deleted"), as_json=as_json)


def _print_changed(
    reply: CreateTopicReply | TopicReply, columns: Sequence[str], *, as_json: bool
) -> None:
    """Print a topic that was changed, and the groups that do not know of it yet."""
    if as_json:
        print_json(topic_row(reply.topic) | {"missing_groups": list(reply.missing_groups)})
        return
    print_rows([shown_row(reply.topic)], columns, as_json=False)
    if reply.missing_groups:
        missing = ", ".join(reply.missing_groups)
        say(f"these groups take the change later: {missing}")


def shown_row(topic: Topic) -> dict[str, object]:
    """Return a topic as a row for people."""
    layout = [f"{part.group}:{part.queues}" for part in topic.layout]
    row = topic_row(topic)
    return row | {"layout": layout, "permission": row["permission"] or None}


def topic_row(topic: Topic) -> dict[str, object]:
    """Return a topic as a row for programs."""
    permission = ("r" if topic.permission & 4 else "") + ("w" if topic.permission & 2 else "")
    return {
        "topic": topic.name,
        "id": topic.id.hex(),
        "type": TopicType.Name(topic.type).removeprefix("TOPIC_TYPE_").lower(),
        "layout": [{"group": part.group, "queues": part.queues} for part in topic.layout],
        "layout_version": topic.layout_version,
        "write_queues": topic.write_queues,
        "read_queues": topic.read_queues,
        "permission": permission,
        "retention_time": _shown_bound(topic.retention_ms, "ms"),
        "retention_size": _shown_bound(topic.retention_bytes, ""),
        "cleanup": cleanup_of(topic.retention_ms),
        "control_index": topic.control_index,
        "deleted": topic.deleted,
    }


class QueueBounds(NamedTuple):
    """A queue, the group that holds it, its first offset and the one behind its last message."""

    queue: int
    group: str
    minimum: int
    maximum: int

    def row(self) -> dict[str, object]:
        """Return the queue as a row."""
        return {**self._asdict(), "records": self.maximum - self.minimum}


def queue_bounds(cluster: Cluster, topic: Topic) -> list[QueueBounds]:
    """Return the bounds of each queue of a topic, asked of each group's leader."""
    by_group: dict[str, list[int]] = {}
    for queue in range(max(topic.write_queues, topic.read_queues)):
        by_group.setdefault(queue_owner(topic, queue), []).append(queue)
    found: list[QueueBounds] = []
    for group, queues in by_group.items():
        request = QueueOffsetsRequest(
            queues=[QueueRef(topic=topic.name, queue=queue) for queue in queues], linearizable=True
        )
        reply = cluster.call(
            lambda channel: BrokerStub(channel).QueueOffsets, request, group=group, write=False
        )
        found += [
            QueueBounds(queue, group, row.minimum, row.maximum)
            for queue, row in zip(queues, reply.rows, strict=True)
        ]
    return found


def _bounds(time: str, size: str, cleanup: str) -> tuple[int | None, int | None]:
    """Return the bounds of time and of size as the wire has them; None: unchanged."""
    try:
        return bounds_of(
            cleanup or None,
            _retention(time, "--retention-time", parse_duration),
            _retention(size, "--retention-size", parse_size),
        )
    except ValueError as error:
        bad_input(str(error))


def _retention(text: str, option: str, parse: Callable[[str, str], int]) -> int | None:
    """Return a bound as the wire has it; None: the option was left out."""
    if text in _BOUNDS:
        return _BOUNDS[text]
    bound = parse(text, option)
    if bound > OFFSET_MAX:
        bad_input(f"{option}: {text}, too large", "use `forever` for no bound")
    if not bound:
        bad_input(f"{option}: {text}, must be above 0", "use `default` or `forever`")
    return bound


def _shown_bound(bound: int, unit: str) -> str:
    """Return a bound of a topic's retention as people read it."""
    if bound == RETENTION_BY_KEY:
        return "by key"
    names = {number: name for name, number in _BOUNDS.items()}
    return names.get(bound) or f"{bound}{unit}"


def _permission(text: str) -> int:
    if text not in _PERMISSIONS:
        bad_input(f"--permission: {text}, must be rw, r or w")
    return _PERMISSIONS[text]


def _topic_type(text: str) -> TopicType.ValueType:
    names = {name.removeprefix("TOPIC_TYPE_").lower(): value for name, value in TopicType.items()}
    if text not in names:
        bad_input(f"--type: {text}, must be one of {', '.join(names)}")
    return names[text]
