"""`dledger consume`: share a topic's messages with the other consumers of a group, and commit."""

import asyncio
import signal
from contextlib import suppress
from typing import Annotated, Final

import typer

from dledger_broker.cli.client import connection
from dledger_broker.cli.cluster.topics import TopicName
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    parse_name_servers,
)
from dledger_broker.cli.messages.tail import (
    AcceptUnreadable,
    Show,
    print_body,
    print_document,
    print_text,
)
from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, note
from dledger_client import AsyncConsumer, ConsumerConfig, StartAt, UnreadableData

POLL_RECORDS: Final = 100
POLL_WAIT_MS: Final = 200
STARTS: Final = {"first": StartAt.FIRST, "last": StartAt.LAST}


def consume(
    topic: TopicName,
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group.")],
    start: Annotated[
        str,
        typer.Option("--from", help="Where a new group begins: first or last."),
    ] = "first",
    limit: Annotated[
        int, typer.Option(min=0, help="Stop after this many messages; 0: no limit.")
    ] = 0,
    idle: Annotated[
        float,
        typer.Option(min=0.0, help="Stop after so many seconds without a message; 0: never."),
    ] = 0.0,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Do not create a group that does not exist.")
    ] = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds for each call to the cluster.")
    ] = 10.0,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print only the bodies, a newline after each."),
    ] = False,
    accept_unreadable: AcceptUnreadable = False,
    as_json: JsonFlag = False,
) -> None:
    """Print this consumer's part of a topic, as `dledger tail` prints it, and commit.

    Several of these commands with one --group share the queues of the topic. A message counts as
    done once it is printed: the next consumer of the group goes on behind it. An existing group
    goes on where it was, whatever --from says. The command ends with Ctrl-C, --limit or --idle.
    """
    if raw and as_json:
        bad_input("--raw and --json exclude each other", "leave one of them out")
    if start not in STARTS:
        bad_input(f"--from: {start}, must be first or last")
    config = ConsumerConfig(
        group=group,
        start_at=STARTS[start],
        create_group=not no_create,
        fail_on_unreadable=not accept_unreadable,
        connection=connection(timeout),
    )
    show = print_body if raw else print_document if as_json else print_text
    reader = _Reader(topic, limit=limit, idle=idle, show=show)
    try:
        asyncio.run(reader.run(parse_name_servers(name_servers), config))
    except UnreadableData as error:
        raise CommandFailed(f"{error}", "use --accept-unreadable to leave them out") from error
    finally:
        if reader.passed_over:
            note(f"{reader.passed_over} messages cannot be decoded and were left out")


class _Reader:
    """Prints what the group gives to this consumer."""

    def __init__(self, topic: str, *, limit: int, idle: float, show: Show) -> None:
        self._topic = topic
        self._limit = limit
        self._idle = idle
        self._show = show
        self._stopped = False
        self.passed_over = 0
        """Messages that could not be decoded."""

    def _stop(self) -> None:
        self._stopped = True

    async def run(self, name_servers: list[str], config: ConsumerConfig) -> None:
        """Print until the limit, the idle time, or a signal; commit what is printed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, self._stop)
        printed, printed_at = 0, loop.time()
        async with AsyncConsumer(name_servers, config) as consumer:
            await consumer.subscribe(self._topic)
            while not self._stopped and (printed < self._limit or not self._limit):
                wanted = min(POLL_RECORDS, self._limit - printed) if self._limit else POLL_RECORDS
                records = await consumer.poll(wanted, POLL_WAIT_MS)
                self.passed_over = sum(consumer.passed_over().values())
                for record in records:
                    self._show(record)
                if records:
                    printed, printed_at = printed + len(records), loop.time()
                elif self._idle and loop.time() - printed_at >= self._idle:
                    return
