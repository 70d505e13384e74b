"""Channels of a process whose TLS files change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from dledger_broker.security.authority import Authority, Wanted
from dledger_proto.network.tls import LOOK_SECONDS, TlsFolder, client_name
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import ChannelTable, make_server, take_port

METHOD = "/test.Echo/Stream"
CHANGES = 5
WANTED = Wanted("app", [client_name("c", "app")], ["127.0.0.1"])


async def echo(requests: AsyncIterator[bytes], _context: raw.RawContext) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


def test_a_reader_outlives_changes_of_the_files() -> None:
    """Whoever comes later gets a channel with the new files; who reads is not disturbed."""
    with TemporaryDirectory() as folder:
        asyncio.run(a_reader_outlives_changes(Path(folder)))


async def a_reader_outlives_changes(root: Path) -> None:
    authority, now = Authority.make("c"), [0.0]
    folder = authority.issue(root, WANTED)
    tls = TlsFolder(str(folder), monotonic=lambda: now[0])
    server = make_server()
    handlers = raw.raw_handlers("test.Echo", {"Stream": raw.StreamMethod(echo)})
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
    address = f"127.0.0.1:{take_port(server, '127.0.0.1:0', tls)}"
    await server.start()
    table = ChannelTable((), tls)
    async with asyncio.timeout(20):
        older = raw.raw_stream(table.to(address), METHOD)()
        for number in range(CHANGES):
            reading = asyncio.create_task(raw.read_frame(older))
            before = table.to(address)
            authority.issue(root, WANTED)
            now[0] += LOOK_SECONDS
            assert table.to(address) is not before
            newer = raw.raw_stream(table.to(address), METHOD)()
            await newer.write(b"new")
            assert await raw.read_frame(newer) == b"new"
            newer.cancel()
            await older.write(b"%d" % number)
            assert await reading == b"%d" % number
        older.cancel()
        await table.close()
        await server.stop(None)
