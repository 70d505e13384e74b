"""`dledger message`: look messages up by id, by key, by place; tell what became of one."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dledger_broker.cli.client import open_admin
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
)
from dledger_broker.cli.messages.tail import body_fields, shown_body
from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, note, print_rows
from dledger_broker.cli.values import parse_time, shown_time
from dledger_client import FoundRecord, StoryLine
from dledger_proto.batch.properties import ORDERING_KEY_NAME
from dledger_proto.limits import OFFSET_MAX

COLUMNS = ("topic", "queue", "offset", "stored", "keys", "tag", "body", "message_id")

STORY_COLUMNS = (
    "index", "time", "event", "place", "consumer_group", "consumer", "epoch", "what",
)  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Look messages up by id, by key, by place; explain one.", no_args_is_help=True
    )
    group.command("id")(by_id)
    group.command("key")(by_key)
    group.command("at")(at_offset)
    group.command("explain")(explain)
    app.add_typer(group, name="message")


def by_id(
    message_id: Annotated[
        str, typer.Argument(help="Of the message, 48 hex digits.", show_default=False)
    ],
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show the message with an id, as `dledger send` prints it."""
    with open_admin(name_servers, timeout) as admin:
        found = admin.lookup_message(message_id)
    if not found:
        raise CommandFailed(f"no message has the id {message_id}", "it may be trimmed")
    _print(found, as_json=as_json)


def by_key(
    topic: TopicName,
    key: Annotated[str, typer.Argument(help="As `dledger send --key`.", show_default=False)],
    since: Annotated[str, typer.Option("--from", help="Stored from this time on.")] = "",
    until: Annotated[str, typer.Option("--to", help="Stored up to this time.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Messages shown.")] = 32,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show the messages of a topic that have a key; of each group, those of its newest batch first.

    A time is written like 2026-01-31T12:00:00, with a zone or in that of this machine.
    """
    begin_ms = parse_time(since, "--from") if since else 0
    end_ms = parse_time(until, "--to") if until else 0
    with open_admin(name_servers, timeout) as admin:
        found = admin.lookup_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit + 1)
    if len(found) > limit:
        note(f"these are the first {limit} messages; --limit shows more")
    _print(found[:limit], as_json=as_json)


def at_offset(
    topic: TopicName,
    queue: Annotated[int, typer.Argument(min=0, help="Number of the queue.", show_default=False)],
    offset: Annotated[
        int, typer.Argument(min=0, max=OFFSET_MAX, help="In the queue.", show_default=False)
    ],
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show the message at an offset of a queue."""
    with open_admin(name_servers, timeout) as admin:
        found = admin.lookup_offset(topic, queue, offset)
    _print(found, as_json=as_json)


def explain(
    message: Annotated[
        str, typer.Argument(help="Its id, or with QUEUE and OFFSET its topic.", show_default=False)
    ],
    queue: Annotated[int, typer.Argument(min=-1, help="Number of the queue.")] = -1,
    offset: Annotated[int, typer.Argument(min=-1, max=OFFSET_MAX, help="In the queue.")] = -1,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Tell what became of a message: stored, claimed, done, failed, retried, dead, sent again.

    Each line has the index of the log entry and the time of the leader.
    """
    if (queue < 0) is not (offset < 0):
        bad_input("QUEUE and OFFSET: give both, or a message id alone")
    with open_admin(name_servers, timeout) as admin:
        if queue < 0:
            lines = admin.explain_message(message)
        else:
            lines = admin.explain(message, queue, offset)
    print_rows([_story_row(line) for line in lines], STORY_COLUMNS, as_json=as_json)


def _story_row(line: StoryLine) -> dict[str, object]:
    where = f"{line.topic or line.topic_id.hex()}/{line.queue}"
    return {
        "index": line.index,
        "time": shown_time(line.time_ms),
        "time_ms": line.time_ms,
        "event": line.event,
        "place": where if line.offset < 0 else f"{where}@{line.offset}",
        "consumer_group": line.consumer_group or None,
        "consumer": line.member_id or None,
        "epoch": line.epoch or None,
        "what": line.text,
        "group": line.broker_group,
    }


def _print(found: Sequence[FoundRecord], *, as_json: bool) -> None:
    rows = [_row(each, as_json=as_json) for each in found]
    print_rows(rows, COLUMNS, as_json=as_json, empty="no messages")


def _row(found: FoundRecord, *, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": found.topic or found.topic_id.hex(),
        "queue": found.queue,
        "offset": found.offset,
        "stored": shown_time(found.store_time_ms),
        "store_time_ms": found.store_time_ms,
        "message_id": found.message_id.hex(),
    }
    if found.error is not None:  # nobody can decode it
        return row | {"error": str(found.error), "body": None if as_json else f"({found.error})"}
    record = found.record
    row |= {"keys": list(record.keys), "tag": record.tag}
    if as_json:
        properties = dict(record.properties)
        ordering_key = properties.pop(ORDERING_KEY_NAME, "")
        row |= {"ordering_key": ordering_key} if ordering_key else {}
        return row | {"properties": properties} | body_fields(bytes(record.body))
    return row | {"body": shown_body(bytes(record.body))}
