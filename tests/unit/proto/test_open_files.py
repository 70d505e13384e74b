"""A process takes so many connections that its log keeps files to open."""

import asyncio
import resource
import socket
from unittest.mock import patch

import pytest

from dledger_proto.network.open_files import (
    CONNECTIONS_SHARE,
    OPEN_FILES_WANTED,
    ask_for_open_files,
    connections_max,
)
from dledger_proto.rpc import aio
from dledger_proto.rpc.aio import make_server, open_channel, take_port
from dledger_proto.rpc.raw import UnaryMethod, raw_handlers, raw_unary

BOUND = 8


@pytest.mark.parametrize(
    ("given", "allowed", "expected"),
    [
        (1_024, 4_096, 4_096),
        (1_024, 1 << 20, OPEN_FILES_WANTED),
        (1_024, resource.RLIM_INFINITY, OPEN_FILES_WANTED),
        (1_024, 1_024, None),
        (1 << 20, 1 << 20, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_a_process_asks_for_what_it_may_have(
    given: int, allowed: int, expected: int | None
) -> None:
    with (
        patch.object(resource, "getrlimit", return_value=(given, allowed)),
        patch.object(resource, "setrlimit") as ask,
    ):
        ask_for_open_files()
    asked = [call.args[1] for call in ask.call_args_list]
    assert asked == ([] if expected is None else [(expected, allowed)])


@pytest.mark.parametrize(
    ("given", "expected"),
    [(1_024, 512), (resource.RLIM_INFINITY, OPEN_FILES_WANTED // CONNECTIONS_SHARE)],
)
def test_connections_leave_files_to_others(given: int, expected: int) -> None:
    with patch.object(resource, "getrlimit", return_value=(given, given)):
        assert connections_max() == expected


async def echo(data: bytes, _context: object) -> bytes:
    return data


async def beyond_the_bound() -> None:
    with patch.object(aio, "connections_max", return_value=BOUND):
        server = make_server()
    handlers = raw_handlers("test.Echo", {"Call": UnaryMethod(echo)})
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
    port = take_port(server, "127.0.0.1:0", None)
    await server.start()
    async with asyncio.timeout(30):
        channel = open_channel(f"127.0.0.1:{port}")
        assert await raw_unary(channel, "/test.Echo/Call")(b"before") == b"before"
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * BOUND)]
        try:
            ended = [await asyncio.to_thread(_is_ended, each) for each in silent[BOUND:]]
            assert all(ended), "one more than the bound is closed at once"
            assert await raw_unary(channel, "/test.Echo/Call")(b"after") == b"after"
        finally:
            for each in silent:
                each.close()
            await channel.close(None)
            await server.stop(None)


def _is_ended(each: socket.socket) -> bool:
    """Read until the server closes: what it says first to a connection that it keeps is no end."""
    each.settimeout(3)
    try:
        while each.recv(1_024):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_connections_beyond_the_bound_are_closed_and_those_before_are_served() -> None:
    asyncio.run(beyond_the_bound())
