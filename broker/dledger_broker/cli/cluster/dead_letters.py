"""`dledger dlq`: list, show, export, resend and purge the dead letters of a consumer group.

A command that settles dead letters goes through them in portions, each one entry of the log. What
is settled is never settled again, so a command that was broken off is simply run again.
"""

import base64
from collections.abc import Iterator
from threading import Event
from typing import Annotated, Final, NamedTuple

import typer

from dledger_broker.cli.asking import Yes, ask
from dledger_broker.cli.cluster.group_progress import GroupName, nudge
from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, Cluster, NameServers, Timeout
from dledger_broker.cli.output import CommandFailed, JsonFlag, note, print_rows
from dledger_broker.cli.values import parse_time, shown_time
from dledger_proto.batch.codec import BatchView, Record, check_envelope
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIME_MS_MAX
from dledger_proto.v1.broker_pb2 import LookupOffsetRequest, QueueRef
from dledger_proto.v1.broker_pb2_grpc import BrokerStub
from dledger_proto.v1.delivery_pb2 import (
    DeadLetter,
    ListDeadLettersRequest,
    SettleDeadLettersRequest,
)
from dledger_proto.v1.delivery_pb2_grpc import DeliveryStub

COLUMNS: Final = ("group", "offset", "died", "origin", "attempts", "resent", "error")
PAGE: Final = 500
PORTION: Final = 100
"""Dead letters that one command of the log settles."""
RESENT_MAX: Final = 3

Since = Annotated[str, typer.Option("--since", help="Only those that died at this TIME or later.")]
Until = Annotated[str, typer.Option("--until", help="Only those that died before this TIME.")]
Key = Annotated[str, typer.Option("--key", help="Only those with this key.")]
Error = Annotated[str, typer.Option("--error", help="Only those whose last error holds this text.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="Dead letters, at most.")]


class Filter(NamedTuple):
    """Which dead letters are meant."""

    since_ms: int
    until_ms: int
    key: str
    error: str
    limit: int


class Found(NamedTuple):
    """A dead letter, and where it lies."""

    group: str
    queue: int
    letter: DeadLetter

    def row(self) -> dict[str, object]:
        """Return the row that people see."""
        letter = self.letter
        return {
            "group": self.group,
            "queue": self.queue,
            "offset": letter.offset,
            "died": shown_time(letter.died_ms),
            "died_ms": letter.died_ms,
            "origin": f"{letter.topic or letter.topic_id.hex()}/{letter.queue}"
            f"@{letter.origin_offset}",
            "attempts": letter.attempts,
            "resent": letter.resent,
            "error": letter.error,
        }


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
    with Cluster(name_servers, timeout) as cluster:
        rows = [found.row() for found in _found(cluster, name, wanted)]
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
    with Cluster(name_servers, timeout) as cluster:
        for found in _of_group(cluster, name, group, offset, 1):
            if found.letter.offset == offset:
                row = found.row() | _content(_record(cluster, name, found))
                columns = (*COLUMNS, "tag", "keys", "body")
                print_rows([row], columns, as_json=as_json)
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
    with Cluster(name_servers, timeout) as cluster:
        rows: list[dict[str, object]] = []
        for found in _found(cluster, name, wanted):
            cluster.restart_clock()
            rows.append(found.row() | _content(_record(cluster, name, found)))
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
    with Cluster(name_servers, timeout) as cluster:
        if dry_run:
            rows = [found.row() for found in _found(cluster, name, wanted)]
            print_rows(rows, COLUMNS, as_json=as_json, empty="no dead letters")
            return
        ask(f"no dead letter of {name} is sent", f"Send dead letters of {name} again?", yes=yes)
        row = _settle(cluster, name, wanted, rate=rate, resent_max=resent_max, resend=True)
        nudge(cluster, name)
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
    with Cluster(name_servers, timeout) as cluster:
        row = _settle(cluster, name, wanted, rate=0, resent_max=0, resend=False)
    row["dropped"] = row.pop("sent")
    print_rows([row], ("consumer_group", "dropped", "others"), as_json=as_json)


def _filter(since: str, until: str, key: str, error: str, limit: int) -> Filter:
    since_ms = parse_time(since, "--since") if since else 0
    until_ms = parse_time(until, "--until") if until else TIME_MS_MAX
    return Filter(since_ms, until_ms, key, error, limit)


def _settle(
    cluster: Cluster, name: str, wanted: Filter, *, rate: float, resent_max: int, resend: bool
) -> dict[str, object]:
    """Settle dead letters in portions; return how many, and what became of the others."""
    # All are looked up first: a dead letter that dies again meanwhile is not one of them.
    places: dict[tuple[str, int], list[int]] = {}
    for found in _found(cluster, name, wanted):
        places.setdefault((found.group, found.queue), []).append(found.letter.offset)
    portion = min(PORTION, max(int(rate), 1)) if rate else PORTION
    counts = {Code.OK: 0, Code.HELD: 0}
    others = 0
    pause = Event()
    for (group, queue), offsets in places.items():
        for at in range(0, len(offsets), portion):
            cluster.restart_clock()
            request = SettleDeadLettersRequest(
                consumer_group=name,
                queue=queue,
                offsets=offsets[at : at + portion],
                resend=resend,
                resent_max=resent_max,
            )
            reply = cluster.call(
                lambda channel: DeliveryStub(channel).SettleDeadLetters,
                request,
                group=group,
                write=True,
            )
            for code in map(Code, reply.codes):
                if code in counts:
                    counts[code] += 1
                else:
                    others += 1
            if Code.TOO_MANY_RANGES in reply.codes:
                note(f"group {group}: too many dead letters are settled here and there; settle the "
                     "oldest first")  # fmt: skip
            if rate:
                pause.wait(len(request.offsets) / rate)
    return {
        "consumer_group": name,
        "sent": counts[Code.OK],
        "left_by_guard": counts[Code.HELD],
        "others": others,
    }


def _found(cluster: Cluster, name: str, wanted: Filter) -> Iterator[Found]:
    """Yield the dead letters that are meant, group by group, the oldest first."""
    left = wanted.limit
    for route in list(cluster.routes().groups):
        for found in _of_group(cluster, name, route.group, 0, PAGE):
            letter = found.letter
            if not wanted.since_ms <= letter.died_ms < wanted.until_ms:
                continue
            if wanted.error and wanted.error not in letter.error:
                continue
            if wanted.key and wanted.key not in _keys(_record(cluster, name, found)):
                continue
            if not left:
                return
            left -= 1
            yield found


def _of_group(cluster: Cluster, name: str, group: str, offset: int, page: int) -> Iterator[Found]:
    """Yield the dead letters of one broker group, from an offset on, page by page."""
    while offset >= 0:
        cluster.restart_clock()
        try:
            reply = cluster.call(
                lambda channel: DeliveryStub(channel).ListDeadLetters,
                ListDeadLettersRequest(consumer_group=name, offset=offset, limit=page),
                group=group,
                write=False,
            )
        except DledgerError as error:
            if error.code is Code.QUEUE_NOT_FOUND:
                return  # a broker group that joined after the consumer group was created
            raise
        yield from (Found(group, reply.queue, letter) for letter in reply.letters)
        offset = reply.next if page > 1 else -1


def _record(cluster: Cluster, name: str, found: Found) -> Record | None:
    """Return the message of a dead letter; None when it is gone or cannot be decoded."""
    ref = QueueRef(topic=f"%DLQ%{name}", queue=found.queue)
    try:
        reply = cluster.call(
            lambda channel: BrokerStub(channel).LookupOffset,
            LookupOffsetRequest(queue=ref, offset=found.letter.offset),
            group=found.group,
            write=False,
        )
        (row,) = reply.records
        return BatchView(row.batch, check_envelope(row.batch)).record(0) if not row.code else None
    except DledgerError as error:
        if error.code in (Code.OFFSET_OUT_OF_RANGE, Code.UNREADABLE_BATCH, Code.CORRUPT_BATCH):
            return None
        raise


def _keys(record: Record | None) -> tuple[str, ...]:
    return () if record is None else tuple(record.keys)


def _content(record: Record | None) -> dict[str, object]:
    if record is None:
        return {"tag": None, "keys": None, "body": None}
    body = base64.b64encode(bytes(record.body)).decode()
    return {"tag": record.tag, "keys": list(record.keys), "body": body}
