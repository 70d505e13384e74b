"""Wake-ups of grpc.aio: a busy event loop hears of what gRPC finished, however much that is.

Goal: nothing that gRPC finished waits for the turns of a busy loop. Method: the socket by which the
poller wakes the loop is filled up, as a loop that is never idle does in seconds; then calls are
answered, and the turns are counted until the loop hears of them. The kernel wakes a writer that
blocks only when three quarters of the socket are free, which takes a turn for each byte.
"""

import asyncio
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio

from dledger_proto.rpc.aio import make_server, open_channel, poller_sockets
from dledger_proto.rpc.raw import raw_unary

METHOD = "/test.Echo/Echo"
TURNS_MAX = 60
"""Of some 280 bytes that fill the socket, and 210 that a blocked writer waits for."""
TURN_SECONDS = 0.02
CALLS = 8


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers with what it got."""

    def service(self, handler_call_details: object) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


def fill(sockets: list[socket.socket]) -> int:
    """Fill both directions, as nobody knows here which one is the poller's; return the bytes."""
    count = 0
    for each in sockets:
        was_blocking = each.getblocking()
        each.setblocking(False)
        try:
            while True:
                each.send(b"1")
                count += 1
        except BlockingIOError:
            pass
        each.setblocking(was_blocking)
    return count


async def turns_until_answered(port: int) -> tuple[int, int]:
    """Return how many bytes filled the socket, and after how many slow turns the calls ended."""
    channel = open_channel(f"127.0.0.1:{port}")
    try:
        call = raw_unary(channel, METHOD)
        assert await call(b"warm") == b"warm"
        pause = threading.Event()
        bytes_waiting = fill(poller_sockets())
        # The first that finishes is in the queue before the poller writes; the others come after.
        answer = asyncio.gather(*(call(b"busy") for _ in range(CALLS)))
        turns = 0
        while not answer.done():
            turns += 1
            pause.wait(TURN_SECONDS)  # a turn in which the loop does something else
            await asyncio.sleep(0)
        assert await answer == [b"busy"] * CALLS
        return bytes_waiting, turns
    finally:
        await channel.close(None)


def test_a_busy_loop_hears_of_an_answer_though_its_wakeups_fill_the_socket() -> None:
    """Without the mending it takes three quarters of the bytes, a turn each."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        bytes_waiting, turns = asyncio.run(turns_until_answered(port))
    finally:
        server.stop(None)
    assert bytes_waiting > 4 * TURNS_MAX
    assert turns <= TURNS_MAX


def test_this_version_of_grpc_has_the_poller_that_is_mended() -> None:
    """A change of gRPC that hides the sockets must not bring the stall back in silence."""

    async def sockets() -> list[bool]:
        server = make_server()
        try:
            return [each.getblocking() for each in poller_sockets()]
        finally:
            await server.stop(None)

    assert asyncio.run(sockets()) == [False, False]


def test_without_grpc_aio_there_is_nothing_to_mend() -> None:
    """A process that never used grpc.aio has no poller."""
    code = "from dledger_proto.rpc.aio import poller_sockets; assert poller_sockets() == []"
    subprocess.run([sys.executable, "-c", code], check=True)
