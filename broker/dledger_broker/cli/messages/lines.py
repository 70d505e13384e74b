"""Lines of a source that may be slow: a thread waits for it, the event loop never does.

Owns: splitting bytes into lines, the bounded hand-over from the thread to the loop. Not owned:
where the bytes come from (`read`), what becomes of a line.

A line ends at its line feed, which is not part of the line. All other bytes stay, also a carriage
return. The thread hands lines over as soon as it has read them. Memory is bounded: the thread stops
while `HANDED_OVER_MAX` reads wait to be taken, and keeps only the size of a line above the limit.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

READ_SIZE: Final = 64 * 1024
"""Bytes that one read asks for; it returns what is there."""
HANDED_OVER_MAX: Final = 4
"""Reads whose lines may wait to be taken."""

Read = Callable[[int], bytes]
"""Waits for bytes, returns at most so many; none at the end. Raises OSError."""


class TooLong(NamedTuple):
    """Stands for a line above the limit."""

    size: int


Line = bytes | TooLong


class Splitter:
    """Turns bytes, as they come, into lines. Pure."""

    def __init__(self, line_size_max: int) -> None:
        self._line_size_max = line_size_max
        self._begun = bytearray()
        """The begin of the line that has no end yet; empty once the line is above the limit."""
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """Iterate over the lines that `data` ends."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            yield self._take()
        if rest:
            self._add(rest)

    def end(self) -> Iterator[Line]:
        """Iterate over the bytes behind the last line feed: one line, or none."""
        if self._size:
            yield self._take()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._line_size_max:
            self._begun += part
        else:
            self._begun.clear()

    def _take(self) -> Line:
        is_whole = self._size <= self._line_size_max
        line: Line = bytes(self._begun) if is_whole else TooLong(self._size)
        self._begun.clear()
        self._size = 0
        return line


class LineFeed:
    """Lines that a thread reads. Call `start` and `take` on the loop's thread."""

    def __init__(self, read: Read, line_size_max: int) -> None:
        self._read = read
        self._splitter = Splitter(line_size_max)
        self._slots = threading.Semaphore(HANDED_OVER_MAX)
        self._handed_over: asyncio.Queue[list[Line] | OSError | None] = asyncio.Queue()
        """Lines of one read; the error that ended reading; or None for the end."""
        self._stopped = False

    def start(self) -> None:
        """Begin to read. The thread is a daemon: its wait for a source cannot be ended."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(loop,), name="dledger input", daemon=True).start()

    async def take(self) -> list[Line]:
        """Return the next lines as soon as there are any, none at the end; OSError."""
        taken = await self._handed_over.get()
        self._slots.release()
        if isinstance(taken, OSError):
            raise taken
        return taken or []

    def stop(self) -> None:
        """Read no further, once the read under way returns."""
        self._stopped = True
        self._slots.release()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for lines in self._reads():
                self._slots.acquire()
                if self._stopped:
                    return
                loop.call_soon_threadsafe(self._handed_over.put_nowait, lines)
        except RuntimeError:
            if not loop.is_closed():  # else no coroutine takes lines any more
                raise

    def _reads(self) -> Iterator[list[Line] | OSError | None]:
        try:
            while not self._stopped and (data := self._read(READ_SIZE)):
                lines = list(self._splitter.feed(data))
                if lines:
                    yield lines
        except OSError as error:
            yield error
        else:
            rest = list(self._splitter.end())
            if rest:
                yield rest
            yield None


def reading(descriptor: int) -> Read:
    """Return the function that reads a file, pipe or terminal, also a non-blocking one."""

    def read(size: int) -> bytes:
        while True:
            try:
                return os.read(descriptor, size)
            except BlockingIOError:
                select.select([descriptor], [], [])

    return read
