"""A network that can be cut: TCP proxies in a process of their own, one for each directed link.

`python -m bench.proxy` reads `FROM TO PORT TARGET_PORT` lines until an empty one, prints `ready`,
then obeys `cut NAME` and `heal NAME`, answering each with `ok`, until its standard input ends.

A cut link carries nothing and closes nothing: what was sent waits, new connections are taken by the
kernel and hear nothing, as when a cable is pulled (apart from retransmission timers).
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass, field

import uvloop

HOST = "127.0.0.1"
CHUNK_SIZE = 256 << 10


@dataclass(slots=True)
class Link:
    """One direction of dialling; bytes flow both ways."""

    ends: tuple[str, str]
    target_port: int
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        await self.is_open.wait()
        try:
            to_reader, to_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_SIZE):
                await self.is_open.wait()
                writer.write(data)
                await writer.drain()
        await self.is_open.wait()
        writer.close()


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def main() -> None:
    """Serve until standard input ends."""
    links: list[Link] = []
    reader = await _lines()
    while words := (await reader.readline()).decode().split():
        link = Link((words[0], words[1]), int(words[3]))
        link.is_open.set()
        await asyncio.start_server(link.take, HOST, int(words[2]))
        links.append(link)
    print("ready", flush=True)
    while words := (await reader.readline()).decode().split():
        for link in links:
            if words[1] in link.ends:
                if words[0] == "cut":
                    link.is_open.clear()
                else:
                    link.is_open.set()
        print("ok", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
