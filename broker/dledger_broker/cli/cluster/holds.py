"""`dledger hold`: list and release the holds that keep queues from being trimmed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.cluster.offsets import QueueOption
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    Cluster,
    NameServers,
    Timeout,
    queue_owner,
)
from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    bad_input,
    note,
    print_rows,
)
from dledger_broker.cli.values import shown_time
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import QUEUES_PER_CALL_MAX
from dledger_proto.v1.broker_pb2 import (
    HoldAllReply,
    HoldAllRequest,
    ListHoldsReply,
    ListHoldsRequest,
    QueueRef,
)
from dledger_proto.v1.broker_pb2_grpc import AdminStub

COLUMNS: Final = ("topic", "queue", "owner", "offset", "until", "seconds_left", "group")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="List and release the holds that keep queues from being trimmed.", no_args_is_help=True
    )
    group.command("list")(list_holds)
    group.command("release")(release)
    app.add_typer(group, name="hold")


def list_holds(
    topic: Annotated[str, typer.Argument(help="Only holds of this topic.")] = "",
    queue: QueueOption = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Holds shown.")] = 1_000,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List the active holds of a queue, of a topic, or of all topics.

    Spark reads, exports and other readers take holds, so that nothing they read is trimmed
    meanwhile. A hold keeps all messages from its offset on until the hold ends. Its owner renews
    it.
    """
    if queue is not None and not topic:
        bad_input(f"--queue: {queue} without a topic", "name the topic")
    with Cluster(name_servers, timeout) as cluster:
        rows = _listed(cluster, topic, queue, limit + 1)
    if len(rows) > limit:
        note(f"these are the first {limit} holds; --limit shows more")
    print_rows(rows[:limit], COLUMNS, as_json=as_json, empty="no holds")


def release(
    topic: TopicName,
    owners: Annotated[list[str], typer.Argument(help="Whose holds.", show_default=False)],
    queue: QueueOption = None,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Release holds of a topic before they end, on all its queues or on one.

    The messages may then be trimmed although their reader still needs them. An owner that still
    works renews its hold and so takes it again.
    """
    ask(
        f"no hold of topic {topic} is released",
        f"End the holds of {', '.join(owners)} on topic {topic}?",
        yes=yes,
    )
    with Cluster(name_servers, timeout) as cluster:
        held = [row for row in _listed(cluster, topic, queue, None) if row["owner"] in owners]
        if not held:
            known = "see: dledger hold list"
            raise CommandFailed(f"topic {topic} has no hold of {', '.join(owners)}", known)
        for group in sorted({str(row["group"]) for row in held}):
            mine = [row for row in held if row["group"] == group]
            for start in range(0, len(mine), QUEUES_PER_CALL_MAX):
                _release(cluster, group, topic, mine[start : start + QUEUES_PER_CALL_MAX])
    print_rows(held, ("topic", "queue", "owner", "offset", "group"), as_json=as_json)


def _listed(
    cluster: Cluster, topic: str, queue: int | None, limit: int | None
) -> list[dict[str, object]]:
    """Return up to `limit` holds as rows."""
    request = ListHoldsRequest(topic=topic)
    if queue is not None:
        request.queue = queue
    rows: list[dict[str, object]] = []
    for group in _groups(cluster, topic, queue):
        request.after = b""
        while limit is None or len(rows) < limit:
            request.limit = 0 if limit is None else limit - len(rows)
            reply = cluster.call(
                lambda channel: AdminStub(channel).ListHolds, request, group=group, write=False
            )
            rows += [_row(hold, group, reply.now_ms) for hold in reply.holds]
            if not reply.next:
                break
            request.after = reply.next
    return rows


def _groups(cluster: Cluster, topic: str, queue: int | None) -> Iterable[str]:
    if not topic:
        cluster.group()  # ends the command when nobody is registered
        return [route.group for route in cluster.routes().groups]
    found = cluster.topic(topic)
    if queue is not None:
        return [queue_owner(found, queue)]
    return dict.fromkeys(part.group for part in found.layout)


def _row(hold: ListHoldsReply.Hold, group: str, now_ms: int) -> dict[str, object]:
    return {
        "topic": hold.topic,
        "queue": hold.queue,
        "owner": hold.owner,
        "offset": hold.offset,
        "until": shown_time(hold.until_ms),
        "until_ms": hold.until_ms,
        "seconds_left": round((hold.until_ms - now_ms) / 1_000),
        "group": group,
    }


def _release(
    cluster: Cluster, group: str, topic: str, rows: Sequence[Mapping[str, object]]
) -> None:
    """Release holds in one call; DledgerError when one of them is not released."""
    request = HoldAllRequest()
    for row in rows:
        queue, owner = row["queue"], row["owner"]
        assert isinstance(queue, int)
        assert isinstance(owner, str)
        request.queues.add(queue=QueueRef(topic=topic, queue=queue), owner=owner)
    reply: HoldAllReply = cluster.call(
        lambda channel: AdminStub(channel).HoldAll, request, group=group, write=True
    )
    for row, code, detail in zip(rows, reply.codes, reply.details, strict=True):
        if code != Code.OK:
            raise DledgerError(Code(code), f"queue {row['queue']}: {detail}")
