"""`dledger schedule`: messages that the cluster sends again and again, by cron expressions."""

import os
from typing import Annotated

import typer

from dledger_broker.cli.client import open_admin
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
)
from dledger_broker.cli.messages.send import properties_of
from dledger_broker.cli.output import JsonFlag, print_rows
from dledger_broker.cli.values import shown_time
from dledger_client import Schedule

COLUMNS = ("topic", "name", "cron", "time_zone", "queue", "next", "group")
ScheduleName = Annotated[str, typer.Argument(help="Of the schedule.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Send messages again and again, by cron expressions.", no_args_is_help=True
    )
    group.command("set")(set_schedule)
    group.command("list")(list_schedules)
    group.command("delete")(delete)
    app.add_typer(group, name="schedule")


def set_schedule(
    topic: TopicName,
    name: ScheduleName,
    cron: Annotated[
        str, typer.Argument(help='Like "30 6 * * MON-FRI"; with seconds first: six fields.')
    ],
    body: Annotated[str, typer.Argument(help="The message.")],
    time_zone: Annotated[str, typer.Option(help="In which the expression is read.")] = "UTC",
    ordering_key: Annotated[str, typer.Option(help="It decides the queue.")] = "",
    queue: Annotated[int | None, typer.Option(min=0, help="Default: 0.")] = None,
    tag: Annotated[str, typer.Option(help="Tag of the message.")] = "",
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Key to look the messages up by (repeatable)."),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="NAME=VALUE (repeatable).")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Send a message at each time of a cron expression, until the schedule is deleted.

    A schedule of the same topic and name is replaced. Each time gives one message at most, also
    when the leader changes at that moment. Of the times at which the cluster did not run, the
    latest is made up for.
    """
    with open_admin(name_servers, timeout) as admin:
        schedule = admin.set_schedule(
            topic, name, cron, os.fsencode(body), time_zone=time_zone,
            ordering_key=ordering_key or None, queue=queue, tag=tag, keys=tuple(keys or ()),
            properties=properties_of(properties or []),
        )  # fmt: skip
    print_rows([_row(schedule)], COLUMNS, as_json=as_json)


def list_schedules(
    topic: Annotated[str, typer.Argument(help="Only schedules of this topic.")] = "",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List schedules, and when each sends next."""
    with open_admin(name_servers, timeout) as admin:
        schedules = admin.schedules(topic)
    rows = [_row(schedule) for schedule in schedules]
    print_rows(rows, COLUMNS, as_json=as_json, empty="no schedules")


def delete(
    topic: TopicName,
    name: ScheduleName,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete a schedule; what it has sent stays."""
    with open_admin(name_servers, timeout) as admin:
        admin.delete_schedule(topic, name)
    print_rows([{"topic": topic, "deleted": name}], ("topic", "deleted"), as_json=as_json)


def _row(schedule: Schedule) -> dict[str, object]:
    next_ms = schedule.next_due_ms
    return {
        "topic": schedule.topic,
        "name": schedule.name,
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "queue": schedule.queue,
        "last_due_ms": schedule.last_due_ms,
        "next": shown_time(next_ms) if next_ms else "not known",
        "next_due_ms": next_ms or None,
        "group": schedule.group,
    }
