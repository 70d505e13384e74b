"""`dledger tail`: print a topic's messages, from any place, and follow it."""

import asyncio
import base64
import datetime as dt
from typing import Annotated, Final

import typer

from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
    is_inside,
    parse_name_servers,
)
from dledger_broker.cli.offsets import QueueOption, parse_time
from dledger_broker.cli.output import (
    EXIT_CODES_HELP,
    JsonFlag,
    bad_input,
    print_json,
    print_line,
)
from dledger_broker.cli.topics import TopicName
from dledger_client import (
    AsyncConsumer,
    ConnectionConfig,
    ConsumedRecord,
    ConsumerConfig,
    QueueBounds,
    StartAt,
)
from dledger_proto.limits import OFFSET_MAX

POLL_RECORDS: Final = 1_000
POLL_WAIT_MS: Final = 200


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("tail", epilog=EXIT_CODES_HELP)(tail)


def tail(
    topic: TopicName,
    queue: QueueOption = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="beginning, end, OFFSET, or TIME (2026-01-31T12:00:00, local or Z)."
        ),
    ] = "beginning",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="End after so many; 0: no limit.")] = 0,
    prefer: Annotated[
        str, typer.Option(help="leader, follower (any), or the name of a member.")
    ] = "leader",
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Print messages: queue, offset, store time, key and body; with --json one document per line.

    Without --follow it ends at what was the end when it began. A body that is not UTF-8 is printed
    in base64.
    """
    if start in {"beginning", "end"} or (start.isascii() and start.isdigit()):
        time_ms = None
        if start.isdigit() and int(start) > OFFSET_MAX:
            bad_input(f"--from: {start}, must be an offset up to {OFFSET_MAX}")
    else:
        time_ms = parse_time(start, "--from")
    if start == "end" and not follow:
        bad_input("--from end without --follow shows nothing", "say --follow")
    if not prefer:
        bad_input("--prefer: empty, must be leader, follower or the name of a member")
    config = ConsumerConfig(
        start_at=StartAt.ERROR,
        prefer=prefer,
        connection=ConnectionConfig(call_timeout_ms=round(timeout * 1000), inside=is_inside()),
    )
    reader = Reader(topic, queue, follow=follow, limit=limit, as_json=as_json)
    try:
        asyncio.run(reader.run(parse_name_servers(name_servers), config, start, time_ms))
    except KeyboardInterrupt:
        if not follow:
            raise


class Reader:
    """Reads the queues of one topic and prints what it gets."""

    def __init__(
        self, topic: str, queue: int | None, *, follow: bool, limit: int, as_json: bool
    ) -> None:
        self._topic = topic
        self._queue = queue
        self._follow = follow
        self._limit = limit
        self._as_json = as_json
        self._printed = 0

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
            await consumer.assign(
                {
                    (self._topic, queue): _place(start, bounds[queue], self._follow)
                    for queue in queues
                }
            )
            if time_ms is not None:
                for queue in queues:
                    await consumer.seek_to_time(self._topic, time_ms, queue)
            ends = {queue: bounds[queue].maximum for queue in queues}
            while self._follow or self._behind(consumer, ends):
                for record in await consumer.poll(POLL_RECORDS, POLL_WAIT_MS):
                    if not self._follow and record.offset >= ends[record.queue]:
                        continue
                    self._print(record)
                    if self._printed == self._limit:
                        return

    def _behind(self, consumer: AsyncConsumer, ends: dict[int, int]) -> bool:
        return any(consumer.position(self._topic, queue) < end for queue, end in ends.items())

    def _print(self, record: ConsumedRecord) -> None:
        self._printed += 1
        if self._as_json:
            print_json(_fields(record))
            return
        stored = dt.datetime.fromtimestamp(record.store_time_ms / 1000, dt.UTC).astimezone()
        moment = stored.isoformat(timespec="milliseconds")
        keys = ",".join(record.keys) or "-"
        body, is_text = _text(bytes(record.body))
        mark = "" if is_text else "base64:"
        print_line(f"{record.queue}\t{record.offset}\t{moment}\t{keys}\t{mark}{body}")


def _place(start: str, bounds: QueueBounds, follow: bool) -> int:
    """Return where to begin in a queue: an offset that is surely within its bounds."""
    if start == "end":
        return bounds.maximum
    if start.isascii() and start.isdigit():
        offset = max(int(start), bounds.minimum)
        # Following may begin at a message that does not exist yet.
        return offset if follow else min(offset, bounds.maximum)
    return bounds.minimum


def _text(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode(), True
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), False


def _fields(record: ConsumedRecord) -> dict[str, object]:
    body, is_text = _text(bytes(record.body))
    return {
        "topic": record.topic,
        "queue": record.queue,
        "offset": record.offset,
        "store_time_ms": record.store_time_ms,
        "time_ms": record.time_ms,
        "tag": record.tag,
        "keys": list(record.keys),
        "properties": dict(record.properties),
        "message_id": record.message_id.hex(),
        ("body" if is_text else "body_base64"): body,
    }
