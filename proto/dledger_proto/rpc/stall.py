"""Readers that stop reading: how long one message of a stream waits to be taken.

Owns the rule for every stream that a member or a name server sends. Without the rule, a reader that
takes nothing would keep its place in admission, and its messages in memory, without end. A silent
stream is not stalled: the time runs only while a message waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dledger_proto import limits
from dledger_proto.errors import Code, DledgerError

T = TypeVar("T")


def within_stall_limit(
    send: Callable[[T], Awaitable[None]], again: str
) -> Callable[[T], Awaitable[None]]:
    """Return `send` with a limit: BUSY, saying `again`, when a message is not taken in time."""

    async def limited(message: T) -> None:
        try:
            async with asyncio.timeout(limits.STREAM_STALL_MS / 1_000):
                await send(message)
        except TimeoutError:
            seconds = limits.STREAM_STALL_MS / 1_000
            raise DledgerError(
                Code.BUSY, f"the reader took nothing for {seconds:.0f} s; {again}"
            ) from None

    return limited
