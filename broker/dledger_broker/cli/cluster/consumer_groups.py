"""`dledger group create|update|delete|list|show`: consumer groups and their settings."""

from typing import Annotated, Any, Final

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.cluster.coordinator import (
    CONSUMER_COLUMNS,
    QUEUE_COLUMNS,
    consumer_rows,
    described,
    queue_rows,
)
from dledger_broker.cli.cluster.topics import all_topics
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    bad_input,
    note,
    print_json,
    print_rows,
    say,
)
from dledger_broker.cli.values import parse_duration, parse_time, shown_time
from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.v1.broker_pb2 import (
    START_FROM_FIRST,
    START_FROM_LAST,
    START_FROM_TIME,
    ConsumeOrder,
    ConsumerGroupSettings,
    ListTopicsRequest,
    StartFrom,
    Topic,
)
from dledger_proto.v1.delivery_pb2 import (
    ConsumerGroup,
    ConsumerGroupReply,
    CreateConsumerGroupRequest,
    DeleteConsumerGroupRequest,
    UpdateConsumerGroupRequest,
)
from dledger_proto.v1.delivery_pb2_grpc import DeliveryStub

COLUMNS: Final = ("group", "order", "retries_max", "dead_letters", "start", "strategy", "paused")
DETAILS: Final = (
    *COLUMNS, "session_ms", "lease_ms", "pause_failures", "pause_share", "coordinator", "id",
    "retry_delays_ms",
)  # fmt: skip
ORDERS: Final = {
    name.removeprefix("CONSUME_ORDER_").lower(): number for name, number in ConsumeOrder.items()
}
COUNT_MAX: Final = (1 << 32) - 1

GroupName = Annotated[str, typer.Argument(help="Name of the consumer group.", show_default=False)]
Order = Annotated[
    str | None,
    typer.Option(help="concurrent; queue: one record of a queue at a time; key: one of each key."),
]
RetryDelays = Annotated[
    str | None,
    typer.Option(
        help='Pause before each retry, like "10s,1m,10m"; the last one repeats. "default": the '
        "cluster's."
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(min=0, max=COUNT_MAX, help="Failures that are retried; the next is the last."),
]
DeadLetters = Annotated[
    bool | None,
    typer.Option(help="Keep what failed for the last time as dead letters, or call it done."),
]
Start = Annotated[
    str | None,
    typer.Option(help="Where a queue without an offset begins: last, first, or a time."),
]
Session = Annotated[
    str | None, typer.Option(help="A consumer that is silent for so long is gone, like 10s.")
]
Lease = Annotated[
    str | None,
    typer.Option(help="How long an ordered consumer owns a queue without renewing it, like 30s."),
]
Strategy = Annotated[str | None, typer.Option(help="How queues are dealt out, like sticky.")]
PauseFailures = Annotated[
    int | None,
    typer.Option(
        min=0, max=COUNT_MAX, help="So many failures within a minute pause the group; 0: never."
    ),
]
PauseShare = Annotated[
    int | None,
    typer.Option(min=0, max=100, help="They must be so many percent of what was handed out."),
]
Paused = Annotated[bool | None, typer.Option(help="Hand out nothing, or go on.")]


def add_objects(group: typer.Typer) -> None:
    """Add the commands of this module."""
    for function in (create, update, delete, show):
        group.command()(function)
    group.command("list")(list_groups)


def create(
    name: GroupName,
    order: Order = None,
    retry_delays: RetryDelays = None,
    retries: Retries = None,
    dead_letters: DeadLetters = None,
    start: Start = None,
    session: Session = None,
    lease: Lease = None,
    strategy: Strategy = None,
    pause_failures: PauseFailures = None,
    pause_share: PauseShare = None,
    paused: Paused = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Create a consumer group; what is left out of the settings has the cluster's default."""
    settings = _given(
        order, retry_delays, start, session, lease, retries_max=retries, dead_letters=dead_letters,
        strategy=strategy, pause_failures=pause_failures, pause_share=pause_share, paused=paused,
    )  # fmt: skip
    request = CreateConsumerGroupRequest(name=name, fields=settings.keys())
    if settings:
        request.settings.CopyFrom(ConsumerGroupSettings(**settings))
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(
            lambda channel: DeliveryStub(channel).CreateConsumerGroup, request, write=True
        )
    _print_changed(reply, as_json=as_json)


def update(
    name: GroupName,
    order: Order = None,
    retry_delays: RetryDelays = None,
    retries: Retries = None,
    dead_letters: DeadLetters = None,
    start: Start = None,
    session: Session = None,
    lease: Lease = None,
    strategy: Strategy = None,
    pause_failures: PauseFailures = None,
    pause_share: PauseShare = None,
    paused: Paused = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Change settings of a consumer group; what is left out stays as it is."""
    settings = _given(
        order, retry_delays, start, session, lease, retries_max=retries, dead_letters=dead_letters,
        strategy=strategy, pause_failures=pause_failures, pause_share=pause_share, paused=paused,
    )  # fmt: skip
    if not settings:
        bad_input("nothing to change", "name a setting; see dledger group update --help")
    request = UpdateConsumerGroupRequest(
        name=name, settings=ConsumerGroupSettings(**settings), fields=settings.keys()
    )
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(
            lambda channel: DeliveryStub(channel).UpdateConsumerGroup, request, write=True
        )
    _print_changed(reply, as_json=as_json)


def delete(
    name: GroupName,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a consumer group with its offsets, retries and dead letters."""
    ask(
        f"consumer group {name} is not deleted",
        f"Delete consumer group {name}, its offsets, retries and dead letters?",
        yes=yes,
    )
    with Cluster(name_servers, timeout) as cluster:
        reply = cluster.call(
            lambda channel: DeliveryStub(channel).DeleteConsumerGroup,
            DeleteConsumerGroupRequest(name=name),
            write=True,
        )
    _print_changed(reply, as_json=as_json)


def show(
    name: GroupName,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show a consumer group: its settings, its consumers, who has which queue."""
    with Cluster(name_servers, timeout) as cluster:
        try:
            topic = cluster.topic(RETRY_TOPIC_PREFIX + name)
        except DledgerError as error:
            if error.code is not Code.TOPIC_NOT_FOUND:
                raise
            topic = Topic()
        if not topic.HasField("consumer_group"):
            raise CommandFailed(
                f"no consumer group is called {name}", "dledger group list shows all"
            )
        found = described(cluster, name)
    row, consumers, queues = _row(_group_of(topic)), consumer_rows(found), queue_rows(found)
    if as_json:
        problems = list(found.problems)
        print_json(row | {"consumers": consumers, "queues": queues, "problems": problems})
        return
    print_rows([_shown(row)], DETAILS, as_json=False)
    print_rows(consumers, CONSUMER_COLUMNS, as_json=False, empty="no consumers")
    print_rows(queues, QUEUE_COLUMNS, as_json=False, empty="no queues")
    for problem in found.problems:
        note(problem)


def list_groups(
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List all consumer groups."""
    with Cluster(name_servers, timeout) as cluster:
        topics = all_topics(cluster, ListTopicsRequest())
    groups = [_row(_group_of(topic)) for topic in topics if topic.HasField("consumer_group")]
    rows = sorted(groups, key=lambda row: str(row["group"]))
    if not as_json:
        rows = list(map(_shown, rows))
    print_rows(rows, COLUMNS, as_json=as_json, empty="no consumer groups")


def _given(
    order: str | None,
    retry_delays: str | None,
    start: str | None,
    session: str | None,
    lease: str | None,
    **others: object,
) -> dict[str, Any]:
    """Return the settings that options name, as the wire has them."""
    settings: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    if order is not None:
        if order not in ORDERS:
            bad_input(f"--order: {order}, must be one of {', '.join(ORDERS)}")
        settings["order"] = ORDERS[order]
    if retry_delays is not None:
        words = [] if retry_delays == "default" else retry_delays.split(",")
        settings["retry_delays_ms"] = [_duration(word, "--retry-delays") for word in words]
    for name, option, text in (
        ("session_ms", "--session", session), ("lease_ms", "--lease", lease),
    ):  # fmt: skip
        if text is not None:
            settings[name] = _duration(text, option)
    if start in ("last", "first"):
        settings["start"] = START_FROM_LAST if start == "last" else START_FROM_FIRST
    elif start is not None:
        settings["start"] = START_FROM_TIME
        settings["start_time_ms"] = parse_time(start, "--start")
    return settings


def _duration(text: str, option: str) -> int:
    duration = parse_duration(text, option)
    if duration > COUNT_MAX:
        bad_input(f"{option}: {text}, at most {COUNT_MAX} ms")
    return duration


def _print_changed(reply: ConsumerGroupReply, *, as_json: bool) -> None:
    row = _row(reply.group)
    if as_json:
        print_json(row | {"missing_groups": list(reply.missing_groups)})
        return
    print_rows([_shown(row)], COLUMNS, as_json=False)
    if reply.missing_groups:
        say(f"these groups take the change later: {', '.join(reply.missing_groups)}")


def _group_of(topic: Topic) -> ConsumerGroup:
    return ConsumerGroup(
        id=topic.id,
        name=topic.name.removeprefix(RETRY_TOPIC_PREFIX),
        settings=topic.consumer_group,
        coordinator=topic.coordinator,
        dead_letter_topic_id=topic.dead_letter_topic_id,
        control_index=topic.control_index,
    )


def _row(group: ConsumerGroup) -> dict[str, object]:
    """Return a consumer group as a row for programs."""
    settings = group.settings
    return {
        "group": group.name,
        "id": group.id.hex(),
        "coordinator": group.coordinator,
        "dead_letter_topic_id": group.dead_letter_topic_id.hex(),
        "control_index": group.control_index,
        "order": ConsumeOrder.Name(settings.order).removeprefix("CONSUME_ORDER_").lower(),
        "retry_delays_ms": list(settings.retry_delays_ms),
        "retries_max": settings.retries_max,
        "dead_letters": settings.dead_letters,
        "start": StartFrom.Name(settings.start).removeprefix("START_FROM_").lower(),
        "start_time_ms": settings.start_time_ms,
        "session_ms": settings.session_ms,
        "lease_ms": settings.lease_ms,
        "strategy": settings.strategy,
        "pause_failures": settings.pause_failures,
        "pause_share": settings.pause_share,
        "paused": settings.paused,
    }


def _shown(row: dict[str, object]) -> dict[str, object]:
    """Return a row for people."""
    if row["start"] != "time":
        return row
    return row | {"start": shown_time(int(str(row["start_time_ms"])))}
