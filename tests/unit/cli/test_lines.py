"""Lines that a thread reads: splitting, bounds, ends. Sources are scripted; they wait for tests."""

import asyncio
import os
import queue
from collections.abc import Coroutine
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.cli.messages.lines import (
    HANDED_OVER_MAX,
    Line,
    LineFeed,
    Splitter,
    TooLong,
    reading,
)
from tests.waiting import until


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


class Source:
    """Gives what the test puts in; waits until there is something. b"" is the end."""

    def __init__(self, *data: bytes | OSError) -> None:
        self.data: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
        self.reads = 0
        for each in data:
            self.data.put(each)

    def __call__(self, _size: int) -> bytes:
        self.reads += 1
        data = self.data.get()
        if isinstance(data, OSError):
            raise data
        return data


def split(parts: list[bytes], limit: int = 1_000) -> list[Line]:
    splitter = Splitter(limit)
    return [line for part in parts for line in splitter.feed(part)] + list(splitter.end())


@given(st.lists(st.text("a\n\r", max_size=8).map(str.encode)))
def test_however_the_bytes_come_the_lines_are_the_same(parts: list[bytes]) -> None:
    *ended, rest = b"".join(parts).split(b"\n")
    assert split(parts) == [*ended, *([rest] if rest else [])]


def test_all_bytes_but_the_line_feed_stay() -> None:
    assert split([b"a\r\n\r\n \t\x00\xff\n\nlast\r"]) == [
        b"a\r",
        b"\r",
        b" \t\x00\xff",
        b"",
        b"last\r",
    ]


def test_of_a_line_above_the_limit_the_size_is_kept_and_nothing_else() -> None:
    splitter = Splitter(4)
    assert list(splitter.feed(b"1234\n12345\n")) == [b"1234", TooLong(5)]
    for _ in range(1_000):
        assert not list(splitter.feed(b"123"))
        assert len(splitter._begun) <= 4
    assert list(splitter.feed(b"\nok\n")) == [TooLong(3_000), b"ok"]
    assert split([b"12", b"345"], 4) == [TooLong(5)]


def test_a_line_is_handed_over_while_the_source_is_waited_for() -> None:
    async def body() -> None:
        source = Source()
        feed = LineFeed(source, 100)
        feed.start()
        for number in range(5):
            source.data.put(b"%d\nbegun" % number)
            assert await feed.take() == [b"%d" % number if number == 0 else b"begun%d" % number]
        source.data.put(b"")
        assert await feed.take() == [b"begun"]
        assert await feed.take() == []

    run(body())


def test_a_source_is_not_read_further_than_the_bound() -> None:
    async def body() -> None:
        source = Source(*[b"x\n"] * 50, b"")
        feed = LineFeed(source, 100)
        feed.start()
        await until(lambda: source.reads > HANDED_OVER_MAX, "the thread waits with one more read")
        for taken in range(50):
            assert await feed.take() == [b"x"]
            assert source.reads <= taken + HANDED_OVER_MAX + 2
        assert await feed.take() == []

    run(body())


def test_a_broken_source_says_so_after_its_lines() -> None:
    async def body() -> None:
        feed = LineFeed(Source(b"a\n", OSError(5, "Input/output error")), 100)
        feed.start()
        assert await feed.take() == [b"a"]
        with pytest.raises(OSError, match="Input/output error"):
            await feed.take()

    run(body())


def test_after_stop_nothing_more_is_read() -> None:
    async def body() -> None:
        source = Source(b"a\n")
        feed = LineFeed(source, 100)
        feed.start()
        assert await feed.take() == [b"a"]
        await until(lambda: source.reads == 2, "the second read is under way")
        feed.stop()
        source.data.put(b"b\n")
        await until(source.data.empty, "it returns")
        assert source.reads == 2

    run(body())


def test_pipes_that_do_not_block_and_files_are_read(tmp_path: Path) -> None:
    async def body() -> None:
        there, here = os.pipe()
        os.set_blocking(there, False)
        feed = LineFeed(reading(there), 100)
        feed.start()
        os.write(here, b"a\nb")
        assert await feed.take() == [b"a"]
        os.close(here)
        assert await feed.take() == [b"b"]
        assert await feed.take() == []
        os.close(there)
        (tmp_path / "f").write_bytes(b"1\n2\n3")
        with (tmp_path / "f").open("rb", buffering=0) as file:
            feed = LineFeed(reading(file.fileno()), 100)
            feed.start()
            assert await feed.take() == [b"1", b"2"]
            assert await feed.take() == [b"3"]
            assert await feed.take() == []

    run(body())
