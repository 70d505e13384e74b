"""`dledger send`: messages from arguments, a file or standard input, one per line."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypedDict

import typer

from dledger_broker.cli.client import connection
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
    parse_name_servers,
)
from dledger_broker.cli.messages.lines import Line, LineFeed, Read, TooLong, reading
from dledger_broker.cli.output import (
    Advance,
    JsonFlag,
    bad_input,
    failure_of,
    note,
    print_error,
    print_json,
    print_rows,
    progress_bar,
)
from dledger_broker.cli.values import parse_duration, parse_time
from dledger_client import (
    AsyncProducer,
    AsyncSendFuture,
    BufferFull,
    ClientError,
    MessageTooLarge,
    ProducerConfig,
    SendResult,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.limits import BODY_SIZE_MAX

TURN_MESSAGES: Final = 500
"""After so many messages of a fast source the loop turns to the answers."""
PROGRESS_SECONDS: Final = 0.1
"""Between two looks at the progress, at least."""
ERRORS_SHOWN_MAX: Final = 5


QueueOption = Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Use this queue.")]
PriorityOption = Annotated[
    int | None, typer.Option("--priority", min=0, help="Of a priority topic: from 0, the lowest.")
]
EPILOG: Final = "Of several messages the worst outcome counts."


class Dressing(TypedDict):
    """What every message of one command carries besides its body, in the form that `send` takes."""

    tag: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    ordering_key: str | None
    queue: int | None
    priority: int | None
    delay_ms: float | None
    deliver_at_ms: int | None
    delay_level: int | None


@dataclass(slots=True)
class Tally:
    """How the messages of one command ended."""

    stored: int = 0
    duplicates: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    exit_code: int = Exit.OK
    queues: Counter[int] = field(default_factory=Counter[int])
    acknowledgement: str = ""
    shown: int = 0

    @property
    def settled(self) -> int:
        """Messages whose outcome is known."""
        return self.stored + sum(self.failed.values())

    def add(self, result: SendResult) -> None:
        """Count a stored message."""
        self.stored += 1
        self.duplicates += result.duplicate
        self.queues[result.queue] += 1
        self.acknowledgement = result.acknowledgement.value

    def settle(self, future: AsyncSendFuture) -> None:
        """Count a message whose future is done."""
        error = future.exception()
        if error is None:
            self.add(future.result())
        else:
            self.add_error(error)

    def add_error(self, error: DledgerError) -> None:
        """Count a message that is not stored, or perhaps not; show the first few."""
        failure = failure_of(error)
        self.failed[error.code.name] += 1
        self.exit_code = max(self.exit_code, failure.code)
        if self.shown < ERRORS_SHOWN_MAX:
            self.shown += 1
            print_error(failure.what, failure.remedy)

    def row(self, seconds: float) -> dict[str, object]:
        """Return the whole as a row."""
        return {
            "stored": self.stored,
            "failed": sum(self.failed.values()),
            "errors": dict(self.failed),
            "duplicates": self.duplicates,
            "queues": len(self.queues),
            "acknowledgement": self.acknowledgement,
            "seconds": round(seconds, 3),
            "per_second": round(self.stored / seconds) if seconds else 0,
        }


def send(
    topic: TopicName,
    bodies: Annotated[
        list[str] | None, typer.Argument(help="Messages; none: lines of --file or stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="One message per line; - is stdin.")
    ] = None,
    ordering_key: Annotated[
        str, typer.Option(help="Messages with the same one keep their order: they share a queue.")
    ] = "",
    queue: QueueOption = None,
    priority: PriorityOption = None,
    tag: Annotated[str, typer.Option(help="Tag of every message.")] = "",
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Key to look the messages up by (repeatable)."),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="NAME=VALUE (repeatable).")
    ] = None,
    delay: Annotated[str, typer.Option(help="Deliver after this time: 5s, 10m, 2h, 3d.")] = "",
    deliver_at: Annotated[str, typer.Option(help="Deliver at this time.")] = "",
    delay_level: Annotated[
        int | None, typer.Option(min=1, help="Deliver after RocketMQ's level, 1 to 18.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Send messages to a topic. A missing topic is created, unless the cluster forbids that.

    Messages given as arguments are printed with queue, offset and id; lines of a file as a summary.
    Each line is sent as soon as it is read, without its line feed, and has the whole --timeout. At
    the end of the input, or when interrupted, the command waits for messages in flight.

    A delayed message has offset -1: it has none until it is delivered. `dledger timer recall` takes
    its id.
    """
    if bodies and file is not None:
        bad_input("both messages and --file are given", "give one of them")
    _check_one({"--ordering-key": ordering_key or None, "--queue": queue, "--priority": priority})
    dressing = Dressing(
        tag=tag,
        keys=tuple(keys or ()),
        properties=properties_of(properties or []),
        ordering_key=ordering_key or None,
        queue=queue,
        priority=priority,
        delay_ms=parse_duration(delay, "--delay") if delay else None,
        deliver_at_ms=parse_time(deliver_at, "--deliver-at") if deliver_at else None,
        delay_level=delay_level,
    )
    make = _producer(name_servers, timeout)
    if bodies:
        code = asyncio.run(_send_few(topic, bodies, dressing, make, as_json=as_json))
    else:
        code = _send_file(topic, file, dressing, make, as_json=as_json)
    raise typer.Exit(code)


def _check_one(options: Mapping[str, object]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        bad_input(f"{' and '.join(given)} are given", "one of them decides the queue")


MakeProducer = Callable[[], AsyncProducer]


def _send_file(
    topic: str, file: Path | None, dressing: Dressing, make: MakeProducer, *, as_json: bool
) -> int:
    with _source(file) as read:
        shows = not (as_json or _is_typed(file))  # a bar would be drawn over what is typed
        return asyncio.run(
            send_lines(topic, read, dressing, make, as_json=as_json, shows_progress=shows)
        )


def _producer(name_servers: str, timeout: float) -> MakeProducer:
    """Return a function that makes the producer; call it inside the event loop."""
    addresses = parse_name_servers(name_servers)
    config = ProducerConfig(timeout_ms=round(timeout * 1000), connection=connection())
    return lambda: AsyncProducer(addresses, config)


async def _send_few(
    topic: str,
    bodies: Sequence[str],
    dressing: Dressing,
    make: MakeProducer,
    *,
    as_json: bool,
) -> int:
    tally = Tally()
    rows: list[dict[str, object]] = []
    async with make() as producer:
        for body in bodies:
            try:
                # An argument's bytes, also those that are no UTF-8.
                result = await producer.send(topic, os.fsencode(body), **dressing)
            except ClientError as error:
                tally.add_error(error)
                continue
            tally.add(result)
            rows.append(_result_row(result))
    columns = ("queue", "offset", "message_id", "acknowledgement", "duplicate")
    if rows or as_json:
        print_rows(rows, columns, as_json=as_json)
    return tally.exit_code


async def send_lines(
    topic: str,
    read: Read,
    dressing: Dressing,
    make: MakeProducer,
    *,
    as_json: bool,
    shows_progress: bool = False,
) -> int:
    """Send every line as it arrives, many in flight; print a summary, also when interrupted.

    Returns the exit code. Memory is bounded by the producer's buffer: while it is full nothing more
    is read.
    """
    tally = Tally()
    feed = LineFeed(read, BODY_SIZE_MAX)
    started = time.monotonic()
    broken: OSError | None = None
    try:
        with progress_bar(f"sending to {topic}", None, show=shows_progress) as advance:
            async with _shown(tally, advance), make() as producer:
                feed.start()
                try:
                    while lines := await feed.take():
                        await _submit_all(producer, topic, lines, dressing, tally)
                except OSError as error:
                    broken = error
                await producer.flush()
    finally:
        feed.stop()
        _print_summary(tally, time.monotonic() - started, as_json=as_json)
    if broken is not None:
        print_error(f"the input cannot be read any further: {broken.strerror}")
        return max(tally.exit_code, Exit.FAILED)
    return tally.exit_code


def _print_summary(tally: Tally, seconds: float, *, as_json: bool) -> None:
    row = tally.row(seconds)
    if as_json:
        print_json(row)
    else:
        columns = ("stored", "failed", "queues", "acknowledgement", "seconds", "per_second")
        print_rows([row], columns, as_json=False)


@asynccontextmanager
async def _shown(tally: Tally, advance: Advance) -> AsyncGenerator[None]:
    """Show how many messages are settled while the block runs, and at its end."""
    shown = 0

    def show() -> None:
        nonlocal shown
        advance(tally.settled - shown)
        shown = tally.settled

    async def watch() -> None:
        while True:
            show()
            await asyncio.sleep(PROGRESS_SECONDS)

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        show()


async def _submit_all(
    producer: AsyncProducer,
    topic: str,
    lines: Sequence[Line],
    dressing: Dressing,
    tally: Tally,
) -> None:
    for number, line in enumerate(lines, 1):
        if isinstance(line, TooLong):
            text = f"a line has {line.size} bytes, at most {BODY_SIZE_MAX}"
            tally.add_error(MessageTooLarge(Code.MESSAGE_TOO_LARGE, text))
        else:
            await _submit(producer, topic, line, dressing, tally)
        if number % TURN_MESSAGES == 0:
            await asyncio.sleep(0)


async def _submit(
    producer: AsyncProducer, topic: str, body: bytes, dressing: Dressing, tally: Tally
) -> None:
    while True:
        try:
            future = producer.submit(topic, body, **dressing)
        except BufferFull:
            await producer.wait_for_room()
        except ClientError as error:
            tally.add_error(error)
            return
        else:
            future.add_done_callback(tally.settle)
            return


def _is_typed(file: Path | None) -> bool:
    """Tell whether a person types the lines."""
    return (file is None or str(file) == "-") and sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]


@contextmanager
def _source(file: Path | None) -> Generator[Read]:
    """Yield what reads the file, or standard input."""
    if file is None or str(file) == "-":
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed by the shell
            bad_input(
                "no messages: standard input is closed", "give them as arguments or by --file"
            )
        if _is_typed(file):
            note("each line becomes a message; Ctrl-D ends")
        yield reading(sys.stdin.fileno())
        return
    try:
        # Without a buffer, whose lock a reading thread would hold at the end of the process.
        source = file.open("rb", buffering=0)
    except OSError as error:
        bad_input(f"--file: {file}: {error.strerror}")
    with source:
        yield reading(source.fileno())


def properties_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the properties of NAME=VALUE pairs; end the command when one is none."""
    properties: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            bad_input(f"--property: {pair}, must be NAME=VALUE")
        properties[name] = value
    return properties


def _result_row(result: SendResult) -> dict[str, object]:
    return {
        "topic": result.topic,
        "group": result.group,
        "queue": result.queue,
        "offset": result.offset,
        "index": result.index,
        "term": result.term,
        "message_id": result.message_id.hex(),
        "acknowledgement": result.acknowledgement.value,
        "duplicate": result.duplicate,
    }
