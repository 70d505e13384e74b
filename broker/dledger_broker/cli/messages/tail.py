"""`dledger tail`: print a topic's messages from any offset on, and follow new ones."""

import asyncio
import base64
import datetime as dt
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from dledger_broker.cli.client import connection
from dledger_broker.cli.cluster.offsets import QueueOption
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
    parse_name_servers,
)
from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    answering,
    bad_input,
    note,
    print_json,
    print_line,
)
from dledger_broker.cli.values import parse_time
from dledger_client import (
    AsyncConsumer,
    ConsumedRecord,
    ConsumerConfig,
    QueueBounds,
    StartAt,
    UnreadableData,
)
from dledger_proto.limits import OFFSET_MAX
from dledger_proto.names import escaped, printable

POLL_RECORDS: Final = 1_000
POLL_WAIT_MS: Final = 200
BASE64: Final = "base64:"
ESCAPED: Final = "escaped:"

AcceptUnreadable = Annotated[
    bool,
    typer.Option(
        "--accept-unreadable", help="Leave out messages that cannot be decoded; print how many."
    ),
]
Show = Callable[[ConsumedRecord], None]
"""Prints one message."""


def tail(
    topic: TopicName,
    queue: QueueOption = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="beginning, end, OFFSET, or TIME (2026-01-31T12:00:00, local or Z)."
        ),
    ] = "beginning",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Stop after this many messages; 0: no limit.")
    ] = 0,
    prefer: Annotated[
        str, typer.Option(help="Member to read from: leader, follower (any), or a member's name.")
    ] = "leader",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print only the bodies, a newline after each."),
    ] = False,
    accept_unreadable: AcceptUnreadable = False,
    as_json: JsonFlag = False,
) -> None:
    """Print messages: queue, offset, store time, keys, body; with --json one document per line.

    Without --follow the command stops at the offsets that were the end when it started.

    Each message is one line, with tabs between its fields. A body with line ends or other control
    characters is printed as `escaped:` with Python's escapes, a body that is not UTF-8 as
    `base64:`. So two bodies never look alike, and no body looks like a line of output. Use --raw
    for the bodies as they are, and --json for programs.
    """
    if raw and as_json:
        bad_input("--raw and --json exclude each other", "leave one of them out")
    time_ms = _time_of(start)
    if start == "end" and not follow:
        bad_input("--from end without --follow shows nothing", "give --follow")
    if not prefer:
        bad_input("--prefer: empty, must be leader, follower or the name of a member")
    config = ConsumerConfig(
        start_at=StartAt.ERROR,
        prefer=prefer,
        fail_on_unreadable=not accept_unreadable,
        connection=connection(timeout),
    )
    show = print_body if raw else print_document if as_json else print_text
    reader = Reader(topic, queue, follow=follow, limit=limit, show=show)
    try:
        asyncio.run(reader.run(parse_name_servers(name_servers), config, start, time_ms))
    except KeyboardInterrupt:
        if not follow:
            raise
    except UnreadableData as error:
        raise CommandFailed(f"{error}", "use --accept-unreadable to leave them out") from error
    finally:
        if reader.passed_over:
            note(f"{reader.passed_over} messages cannot be decoded and were left out")


def _time_of(start: str) -> int | None:
    """Return the time that --from names; None when it is an offset or a word."""
    if start not in {"beginning", "end"} and not (start.isascii() and start.isdigit()):
        return parse_time(start, "--from")
    if start.isdigit() and int(start) > OFFSET_MAX:
        bad_input(f"--from: {start}, must be an offset up to {OFFSET_MAX}")
    return None


class Reader:
    """Reads the queues of one topic and prints the messages."""

    def __init__(
        self, topic: str, queue: int | None, *, follow: bool, limit: int, show: Show
    ) -> None:
        self._topic = topic
        self._queue = queue
        self._follow = follow
        self._limit = limit
        self._show = show
        self._printed = 0
        self.passed_over = 0
        """Messages that could not be decoded."""

    async def run(
        self, name_servers: list[str], config: ConsumerConfig, start: str, time_ms: int | None
    ) -> None:
        """Read and print until the end, the limit, or cancellation."""
        async with AsyncConsumer(name_servers, config) as consumer:
            bounds = await consumer.offsets(self._topic)
            if self._queue is not None and self._queue not in bounds:
                known = f"queues 0 to {len(bounds) - 1}"
                bad_input(f"topic {self._topic} has {known}, not {self._queue}")
            queues = sorted(bounds) if self._queue is None else [self._queue]
            places = {
                (self._topic, queue): _place(start, bounds[queue], self._follow) for queue in queues
            }
            if self._follow and self._queue is None:
                # By its name alone, so that queues that are added later are followed, too.
                await consumer.assign(self._topic, StartAt.LAST)
                for (topic, queue), offset in places.items():
                    await consumer.seek(topic, queue, offset)
            else:
                await consumer.assign(places)
            if time_ms is not None:
                for queue in queues:
                    await consumer.seek_to_time(self._topic, time_ms, queue)
            ends = {queue: bounds[queue].maximum for queue in queues}
            while self._follow or self._behind(consumer, ends):
                records = await consumer.poll(POLL_RECORDS, POLL_WAIT_MS)
                self.passed_over = sum(consumer.passed_over().values())
                for record in records:
                    if not self._follow and record.offset >= ends[record.queue]:
                        continue
                    self._show(record)
                    self._printed += 1
                    if self._printed == self._limit:
                        return

    def _behind(self, consumer: AsyncConsumer, ends: dict[int, int]) -> bool:
        return any(consumer.position(self._topic, queue) < end for queue, end in ends.items())


def print_text(record: ConsumedRecord) -> None:
    """Print a line for people."""
    stored = dt.datetime.fromtimestamp(record.store_time_ms / 1000, dt.UTC).astimezone()
    moment = stored.isoformat(timespec="milliseconds")
    keys = ",".join(record.keys) or "-"
    body = shown_body(bytes(record.body))
    print_line(str(record.queue), str(record.offset), moment, keys, body)


def print_document(record: ConsumedRecord) -> None:
    """Print a line of JSON."""
    print_json(_fields(record))


def print_body(record: ConsumedRecord) -> None:
    """Print the body byte for byte."""
    with answering():
        sys.stdout.buffer.write(bytes(record.body) + b"\n")
        sys.stdout.buffer.flush()


def shown_body(body: bytes) -> str:
    """Return a body in printable characters; no two bodies give the same."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BASE64 + base64.b64encode(body).decode()
    if text != printable(text) or text.startswith((BASE64, ESCAPED)):
        return ESCAPED + escaped(text)
    return text


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body as a field of JSON."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _place(start: str, bounds: QueueBounds, follow: bool) -> int:
    """Return where to begin in a queue: an offset within its bounds."""
    if start == "end":
        return bounds.maximum
    if start.isascii() and start.isdigit():
        offset = max(int(start), bounds.minimum)
        # Following may begin at a message that does not exist yet.
        return offset if follow else min(offset, bounds.maximum)
    return bounds.minimum


def _fields(record: ConsumedRecord) -> dict[str, object]:
    return {
        "topic": record.topic,
        "queue": record.queue,
        "offset": record.offset,
        "store_time_ms": record.store_time_ms,
        "time_ms": record.time_ms,
        "tag": record.tag,
        "keys": list(record.keys),
        **({"ordering_key": record.ordering_key} if record.ordering_key else {}),
        "properties": record.properties,
        "message_id": record.message_id.hex(),
        **body_fields(bytes(record.body)),
    }
