"""The process behind `links`: TCP proxies, for each ordered pair of members one a port.

`python -m jepsen_tests.backends.troubles.link_server` reads one JSON line of links, [[name, port,
host, target port], ...], prints `ready`, then obeys JSON lines [name, kind, trouble or null],
answering each with `ok`, until its standard input ends. Links of one name have the same troubles.

A cut link carries nothing and closes nothing. Sent bytes wait, and a new connection is accepted and
hears nothing, as with a pulled cable but for retransmission timers. On a mute link answers wait;
when the trouble ends they are lost with their connections.
"""

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from jepsen_tests.backends.surface import Trouble, TroubleKind

HOST: Final = "127.0.0.1"
CHUNK_SIZE: Final = 256 << 10
PIECES_ON_THE_WAY_MAX: Final = 1_000


@dataclass(slots=True)
class Link:
    """One direction of dialling; bytes flow both ways."""

    name: str
    target: tuple[str, int]
    troubles: dict[TroubleKind, Trouble] = field(default_factory=dict[TroubleKind, Trouble])
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while answers get through."""
    writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    random: Random = field(default_factory=lambda: Random(1))

    def set(self, kind: TroubleKind, trouble: Trouble | None) -> None:
        """Begin or end one kind of trouble."""
        if kind is TroubleKind.RESET:
            self._reset()
            return
        if kind is TroubleKind.MUTE and trouble is None and kind in self.troubles:
            self._reset()
        if trouble is None:
            self.troubles.pop(kind, None)
        else:
            self.troubles[kind] = trouble
        for stops, way in ((TroubleKind.CUT, self.is_open), (TroubleKind.MUTE, self.answers)):
            if stops in self.troubles:
                way.clear()
            else:
                way.set()

    def _reset(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        await self.is_open.wait()
        try:
            to_reader, to_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        both = {writer, to_writer}
        self.writers |= both
        try:
            await asyncio.gather(
                self._pump(reader, to_writer, self.is_open),
                self._pump(to_reader, writer, self.answers),
            )
        finally:
            self.writers -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event
    ) -> None:
        """Carry bytes one way. A delay holds each piece up once, not the pieces behind it again."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_ON_THE_WAY_MAX)
        arriving = asyncio.create_task(self._deliver(on_the_way, writer, way))
        now = asyncio.get_running_loop().time
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(self._piece()):
                due = max(due, now() + self._delay()) + self._transmission(len(data))
                await on_the_way.put((due, data))
        await on_the_way.put((due, b""))
        await arriving

    async def _deliver(
        self,
        on_the_way: "asyncio.Queue[tuple[float, bytes]]",
        writer: asyncio.StreamWriter,
        way: asyncio.Event,
    ) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, data = await on_the_way.get()
            await self.is_open.wait()
            await way.wait()
            if due > now():
                await asyncio.sleep(due - now())
            if not data:
                writer.close()
                return
            with contextlib.suppress(OSError):  # the sender notices on its own connection
                if not writer.is_closing():
                    writer.write(data)
                    await writer.drain()

    def _piece(self) -> int:
        slices = self.troubles.get(TroubleKind.SLICES)
        return slices.slice_bytes if slices is not None else CHUNK_SIZE

    def _delay(self) -> float:
        delay = self.troubles.get(TroubleKind.DELAY)
        if delay is None:
            return 0.0
        return (delay.delay_ms + self.random.uniform(0, delay.jitter_ms)) / 1000

    def _transmission(self, size: int) -> float:
        rate = self.troubles.get(TroubleKind.BANDWIDTH)
        return size / rate.bytes_per_second if rate is not None else 0.0


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def serve() -> None:
    """Serve until standard input ends. Ctrl-C is ignored: the harness still needs the links."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader = await _lines()
    links: dict[str, list[Link]] = {}
    for name, port, host, target_port in json.loads(await reader.readline()):
        link = Link(name, (host, target_port))
        links.setdefault(name, []).append(link)
        link.is_open.set()
        link.answers.set()
        await asyncio.start_server(link.take, HOST, port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await reader.readline():
        name, kind, trouble = json.loads(line)
        for link in links[name]:
            link.set(TroubleKind(kind), msgspec.convert(trouble, Trouble | None))
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
