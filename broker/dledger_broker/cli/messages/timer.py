"""`dledger timer`: list delayed messages, and take one back."""

import string
from typing import Annotated

import typer

from dledger_broker.cli.client import open_admin
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
)
from dledger_broker.cli.output import JsonFlag, bad_input, note, print_rows
from dledger_broker.cli.values import parse_time, shown_time
from dledger_client import WaitingTimer
from dledger_proto.batch.codec import MESSAGE_ID_SIZE

COLUMNS = ("due", "topic", "queue", "messages", "attempts", "message_id", "group")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="List delayed messages, and take one back.", no_args_is_help=True)
    group.command("list")(list_timers)
    group.command("recall")(recall)
    app.add_typer(group, name="timer")


def list_timers(
    topic: Annotated[str, typer.Argument(help="Only timers of this topic.")] = "",
    since: Annotated[str, typer.Option("--from", help="Due from this time on.")] = "",
    until: Annotated[str, typer.Option("--to", help="Due up to this time.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Timers shown.")] = 100,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List what waits for its time: delayed messages and retries, in the order of their times.

    A time is written like 2026-01-31T12:00:00, with a zone or in that of this machine.
    """
    from_ms = parse_time(since, "--from") if since else 0
    to_ms = parse_time(until, "--to") if until else 0
    with open_admin(name_servers, timeout) as admin:
        timers = admin.timers(topic, from_ms=from_ms, to_ms=to_ms, limit=limit + 1)
    if len(timers) > limit:
        note(f"these are the first {limit} timers; --limit shows more")
    rows = [_row(timer) for timer in timers[:limit]]
    print_rows(rows, COLUMNS, as_json=as_json, empty="no timers")


def recall(
    message_id: Annotated[
        str, typer.Argument(help="Of the message, 48 hex digits.", show_default=False)
    ],
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Take a delayed message back before it is delivered.

    `dledger send` and `dledger timer list` print the message id.
    """
    if len(message_id) != 2 * MESSAGE_ID_SIZE or not set(message_id) <= set(string.hexdigits):
        bad_input(f"MESSAGE_ID: {message_id}, must be 48 hex digits")
    with open_admin(name_servers, timeout) as admin:
        due_ms = admin.recall(message_id)
    row = {"message_id": message_id.lower(), "due": shown_time(due_ms), "due_ms": due_ms}
    print_rows([row], ("message_id", "due"), as_json=as_json)


def _row(timer: WaitingTimer) -> dict[str, object]:
    return {
        "due": shown_time(timer.due_ms),
        "due_ms": timer.due_ms,
        "topic": timer.topic,
        "queue": timer.queue,
        "messages": timer.record_count,
        "attempts": timer.attempts,
        "message_id": timer.message_id.hex(),
        "group": timer.group,
    }
