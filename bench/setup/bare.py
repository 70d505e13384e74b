"""Replication with nothing in it: what three processes, two hops and three syncs cost alone.

A leader takes messages on a stream, writes and syncs each, hands it to two followers that do the
same, and answers when two of the three have. Same libraries, same threads, same disk as a member;
no Raft, no checks, no state, nothing kept in order but by the streams.

`python -m bench.setup.bare FOLDER NAME [PORT PORT]` serves, with the ports of two followers as
their leader; it prints its own port, and ends with its standard input.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import grpc.aio
import uvloop

from bench.setup import echo
from dledger_proto.rpc import raw

FILE_SIZE = 256 << 20
NAMES = ("bare-leader", "bare-follower-1", "bare-follower-2")


class Disk:
    """One preallocated file, written and synced in a thread."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._fd, 0, FILE_SIZE)
        self._offset = 0
        self._thread = ThreadPoolExecutor(1)

    def _write(self, data: bytes) -> None:
        if self._offset + len(data) > FILE_SIZE:
            self._offset = 0
        os.pwrite(self._fd, data, self._offset)
        self._offset += len(data)
        os.fdatasync(self._fd)

    async def write(self, data: bytes) -> None:
        """Write and sync."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, data)


class Leader:
    """Writes each message, sends it to its followers, and answers it before it reads the next."""

    def __init__(self, disk: Disk, followers: list[raw.RawStreamCall]) -> None:
        self._disk = disk
        self._followers = followers
        self._synced = dict.fromkeys(range(1 + len(followers)), 0)
        """How many messages each of the three processes has synced."""
        self._wanted = 0
        self._stored = asyncio.Event()
        self._to_write: asyncio.Queue[bytes] = asyncio.Queue()
        self.tasks = [asyncio.ensure_future(self._write())]
        for number, follower in enumerate(followers, 1):
            self.tasks.append(asyncio.ensure_future(self._hear(number, follower)))

    async def _write(self) -> None:
        while True:
            await self._disk.write(await self._to_write.get())
            self._count(0)

    async def _hear(self, number: int, follower: raw.RawStreamCall) -> None:
        while await raw.read_frame(follower) is not None:
            self._count(number)

    def _count(self, number: int) -> None:
        self._synced[number] += 1
        if sorted(self._synced.values())[1] >= self._wanted:
            self._stored.set()

    async def stream(
        self, requests: AsyncIterator[bytes], _context: raw.RawContext
    ) -> AsyncIterator[bytes]:
        """Answer each message when two of three have synced it."""
        async for message in requests:
            self._wanted += 1
            self._stored.clear()
            for follower in self._followers:
                await follower.write(message)
            self._to_write.put_nowait(message)
            await self._stored.wait()
            yield echo.ANSWER


async def _serve(folder: str, name: str, *ports: str) -> None:
    disk = Disk(Path(folder) / name)

    async def follow(
        requests: AsyncIterator[bytes], _context: raw.RawContext
    ) -> AsyncIterator[bytes]:
        async for message in requests:
            await disk.write(message)
            yield echo.ANSWER

    async with AsyncExitStack() as open_:
        followers: list[raw.RawStreamCall] = []
        for port in ports:
            channel = await open_.enter_async_context(echo.connected(port))
            followers.append(raw.raw_stream(channel, echo.STREAM)())
        behaviour: raw.StreamBehaviour = follow
        if ports:
            leader = Leader(disk, followers)
            behaviour = leader.stream
        await echo.serve({"Stream": raw.StreamMethod(behaviour)})


@asynccontextmanager
async def group(folder: Path) -> AsyncGenerator[grpc.aio.Channel]:
    """Run a leader and two followers; yield a channel to the leader."""
    with ExitStack() as processes:

        def start(name: str, *ports: str) -> str:
            processes.callback((folder / name).unlink, missing_ok=True)
            serving = echo.serving("bench.setup.bare", str(folder), name, *ports)
            return processes.enter_context(serving)

        ports = [start(name) for name in NAMES[1:]]
        async with echo.connected(start(NAMES[0], *ports)) as channel:
            yield channel


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
