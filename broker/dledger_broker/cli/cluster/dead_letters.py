"""`dledger dlq`: list, show, export, resend and purge the dead letters of a consumer group."""

import base64
from typing import Annotated, Final, TypedDict

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.client import open_admin
from dledger_broker.cli.cluster.group_progress import GroupName
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, NameServers, Timeout
from dledger_broker.cli.output import CommandFailed, JsonFlag, note, print_rows
from dledger_broker.cli.values import parse_time, shown_time
from dledger_client import Admin, DeadRecord, OffsetOutOfRange, SettledRecords
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX

COLUMNS: Final = ("group", "offset", "died", "origin", "attempts", "resent", "error")
RESENT_MAX: Final = 3

Since = Annotated[str, typer.Option("--since", help="Only those that died at this TIME or later.")]
Until = Annotated[str, typer.Option("--until", help="Only those that died before this TIME.")]
Key = Annotated[str, typer.Option("--key", help="Only those with this key.")]
Error = Annotated[str, typer.Option("--error", help="Only those whose last error holds this text.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="Dead letters, at most.")]


class Filter(TypedDict):
    """Which dead letters are meant: what the calls of an admin take."""

    since_ms: int
    until_ms: int
    key: str
    error: str
    limit: int


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="List, show, export, resend and purge dead letters.", no_args_is_help=True
    )
    group.command("list")(list_letters)
    for function in (show, export, resend, purge):
        group.command()(function)
    app.add_typer(group, name="dlq")


def list_letters(
    name: GroupName,
    since: Since = "",
    until: Until = "",
    key: Key = "",
    error: Error = "",
    limit: Limit = 100,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """List the dead letters of a consumer group: where each comes from, and why it died."""
    wanted = _filter(since, until, key, error, limit)
    with open_admin(name_servers, timeout) as admin:
        rows = [_row(dead) for dead in admin.dead_letters(name, **wanted)]
    print_rows(rows, COLUMNS, as_json=as_json, empty="no dead letters")


def show(
    name: GroupName,
    group: Annotated[str, typer.Argument(help="Broker group of the dead letter.")],
    offset: Annotated[int, typer.Argument(min=0, help="Its offset, as `list` shows it.")],
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Show one dead letter with its message."""
    with open_admin(name_servers, timeout) as admin:
        dead = admin.dead_letter(name, group, offset)
        row = None if dead is None else _row(dead) | _content(admin, name, dead)
    if row is not None:
        print_rows([row], (*COLUMNS, "tag", "keys", "body"), as_json=as_json)
        return
    raise CommandFailed(f"group {group} has no dead letter {offset} of {name}", "see: dlq list")


def export(
    name: GroupName,
    since: Since = "",
    until: Until = "",
    key: Key = "",
    error: Error = "",
    limit: Limit = 100_000,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 60.0,
) -> None:
    """Write dead letters with their messages to standard output: JSON, the bodies in Base64."""
    wanted = _filter(since, until, key, error, limit)
    with open_admin(name_servers, timeout) as admin:
        found = admin.dead_letters(name, **wanted)
        rows = [_row(dead) | _content(admin, name, dead) for dead in found]
    print_rows(rows, (*COLUMNS, "tag", "keys", "body"), as_json=True)


def resend(
    name: GroupName,
    since: Since = "",
    until: Until = "",
    key: Key = "",
    error: Error = "",
    limit: Limit = 1_000_000,
    rate: Annotated[
        float, typer.Option(min=0, help="Dead letters a second, at most; 0: as fast as it goes.")
    ] = 0,
    resent_max: Annotated[
        int, typer.Option(min=0, help="Leave those that were sent again so often; 0: leave none.")
    ] = RESENT_MAX,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")
    ] = False,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Send dead letters to their consumer group again, each once, with all its tries.

    A command that was broken off is run again: what was sent is not sent twice.
    """
    wanted = _filter(since, until, key, error, limit)
    with open_admin(name_servers, timeout) as admin:
        if dry_run:
            found = admin.dead_letters(name, **wanted)
            rows = [_row(dead) for dead in found if not resent_max or dead.resent < resent_max]
            print_rows(rows, COLUMNS, as_json=as_json, empty="no dead letters")
            return
        ask(f"no dead letter of {name} is sent", f"Send dead letters of {name} again?", yes=yes)
        done = admin.resend_dead_letters(name, **wanted, rate=rate, resent_max=resent_max)
    row = _settled(name, "sent", done)
    print_rows([row], ("consumer_group", "sent", "left_by_guard", "others"), as_json=as_json)


def purge(
    name: GroupName,
    since: Since = "",
    until: Until = "",
    key: Key = "",
    error: Error = "",
    limit: Limit = 1_000_000,
    yes: Yes = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Drop dead letters for good."""
    wanted = _filter(since, until, key, error, limit)
    ask(f"no dead letter of {name} is dropped", f"Drop dead letters of {name} for good?", yes=yes)
    with open_admin(name_servers, timeout) as admin:
        done = admin.purge_dead_letters(name, **wanted)
    row = _settled(name, "dropped", done)
    print_rows([row], ("consumer_group", "dropped", "others"), as_json=as_json)


def _filter(since: str, until: str, key: str, error: str, limit: int) -> Filter:
    return {
        "since_ms": parse_time(since, "--since") if since else 0,
        "until_ms": parse_time(until, "--until") if until else 0,
        "key": key,
        "error": error,
        "limit": limit,
    }


def _row(dead: DeadRecord) -> dict[str, object]:
    return {
        "group": dead.broker_group,
        "queue": dead.dead_queue,
        "offset": dead.dead_offset,
        "died": shown_time(dead.died_ms),
        "died_ms": dead.died_ms,
        "origin": f"{dead.topic or dead.topic_id.hex()}/{dead.queue}@{dead.offset}",
        "attempts": dead.attempts,
        "resent": dead.resent,
        "error": dead.error,
    }


def _settled(name: str, verb: str, done: SettledRecords) -> dict[str, object]:
    if done.left_by_ranges:
        note(
            f"{done.left_by_ranges} were left: too many are settled here and there; settle the"
            " oldest first"
        )
    return {
        "consumer_group": name,
        verb: done.settled,
        "left_by_guard": done.left_by_guard,
        "others": done.others + done.left_by_ranges,
    }


def _content(admin: Admin, name: str, dead: DeadRecord) -> dict[str, object]:
    """Return the message of a dead letter; nothing when it is gone or nobody can decode it."""
    nothing: dict[str, object] = {"tag": None, "keys": None, "body": None}
    topic = DEAD_LETTER_TOPIC_PREFIX + name
    try:
        (found,) = admin.lookup_offset(topic, dead.dead_queue, dead.dead_offset)
    except OffsetOutOfRange:
        return nothing
    if found.error is not None:
        return nothing
    record = found.record
    body = base64.b64encode(bytes(record.body)).decode()
    return {"tag": record.tag, "keys": list(record.keys), "body": body}
