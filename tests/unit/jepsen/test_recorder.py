"""What clients get becomes an outcome: definite errors fail, whatever else breaks is info."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import pytest

from dledger_client import AsyncConsumer
from dledger_client.errors import error_of
from dledger_proto.errors import MEANINGS, Code
from jepsen_tests.history.events import Header, History, Kind
from jepsen_tests.history.history_file import HistoryWriter, read_history
from jepsen_tests.run.recorder import Process, Recorder
from jepsen_tests.workloads.clients import Worker, shown_stored
from jepsen_tests.workloads.values import attributes_of, message_of, value_of

HEADER = Header(
    workload="log", nemeses=(), backend="none", nodes=("n1",), seed=1, seconds=1.0, began="",
    product="",
)  # fmt: skip


def recorded(path: Path, script: Callable[[Process], Awaitable[None]]) -> History:
    async def run() -> None:
        with HistoryWriter(path, HEADER) as writer:
            recorder = Recorder(writer)
            await script(Process(recorder))
            writer.close(recorder.now())

    asyncio.run(run())
    return read_history(path)


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        raise error

    return call


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
@pytest.mark.parametrize("reads", [True, False])
def test_the_shared_table_says_what_is_definite(tmp_path: Path, code: Code, reads: bool) -> None:
    async def script(process: Process) -> None:
        before = process.number
        done, result = await process.do(
            "send", "t/0", ["x"], raising(error_of(code)), lambda found: found, reads=reads
        )
        assert (done, result) == (False, None)
        assert (process.number == before) == (MEANINGS[code].definite or reads)

    (op,) = recorded(tmp_path / "h.jsonl", script).ops
    assert op.outcome is (Kind.FAIL if MEANINGS[code].definite or reads else Kind.INFO)
    assert op.err.startswith(f"{code.name}:")


@pytest.mark.parametrize("reads", [True, False])
def test_what_nobody_expected_is_unknown(tmp_path: Path, reads: bool) -> None:
    async def script(process: Process) -> None:
        await process.do("poll", "", None, raising(KeyError("x")), lambda _: None, reads=reads)
        await process.do("poll", "", None, raising(TimeoutError()), lambda _: None, reads=reads)

    ops = recorded(tmp_path / "h.jsonl", script).ops
    assert [op.outcome for op in ops] == [Kind.INFO, Kind.INFO]
    assert [op.p for op in ops] == [0, 1], "a process of unknown outcome is not used again"
    assert all(op.err.startswith("UNEXPECTED: ") for op in ops)


def test_an_operation_that_is_broken_off_is_unknown(tmp_path: Path) -> None:
    async def script(process: Process) -> None:
        with pytest.raises(asyncio.CancelledError):
            await process.do(
                "send", "t/0", ["x"], raising(asyncio.CancelledError()), lambda _: None
            )

    (op,) = recorded(tmp_path / "h.jsonl", script).ops
    assert op.outcome is Kind.INFO


@pytest.mark.parametrize("size", [1, 40, 5_000])
def test_a_value_is_found_again_and_damage_is_seen(size: int) -> None:
    random = Random(size)
    message = message_of("12-345", random, size)
    assert value_of(message) == "12-345"
    for _ in range(50):
        damaged = bytearray(message.body)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        assert value_of(message._replace(body=bytes(damaged))).startswith("!")
    assert value_of(message._replace(body=message.body[:-1])).startswith("!")


@pytest.mark.parametrize(
    "changes",
    [
        {"tag": "other"},
        {"keys": ("other",)},
        {"properties": {"of": "another"}},
        {"properties": {"more": "of them"}},
    ],
)
def test_what_goes_with_a_body_is_compared_too(changes: dict[str, Any]) -> None:
    assert value_of(message_of("1-1", Random(1), 50)._replace(**changes)).startswith("!1-1 with ")


def test_messages_come_with_all_sorts_of_things() -> None:
    found = [attributes_of(f"1-{n}") for n in range(200)]
    assert {len(each.keys) for each in found} == {0, 1, 2, 3}
    assert {len(each.properties) for each in found} == {0, 1, 2, 3}
    assert any(not each.tag.isascii() for each in found)
    assert any("" in each.properties.values() for each in found)


def test_an_answer_that_no_sound_cluster_gives_is_what_nobody_expected(tmp_path: Path) -> None:
    async def script(process: Process) -> None:
        async def stored() -> int:
            return -1

        done, _ = await process.do("send", "t/0", ["1-1"], stored, lambda at: shown_stored(at, 0))
        assert not done

    (op,) = recorded(tmp_path / "history.jsonl", script).ops
    assert op.outcome is Kind.INFO
    assert op.err == "UNEXPECTED: ValueError: stored at offset -1"


class Bounds(NamedTuple):
    """As members answer them."""

    minimum: int
    maximum: int


@pytest.mark.parametrize(("answer", "said"), [((9, 3), "minimum 9 above maximum 3"), ((3, 3), "")])
def test_bounds_the_wrong_way_round_are_an_error_that_nobody_expects(
    tmp_path: Path, answer: tuple[int, int], said: str
) -> None:
    class Consumer:
        async def offsets(self, _topic: str) -> list[Bounds]:
            return [Bounds(*answer)]

    async def script(process: Process) -> None:
        worker = Worker(process.recorder, "", Random(1))
        worker._consumer = cast("AsyncConsumer", Consumer())
        assert await worker.bounds("t/0") == (None if said else [3, 3])

    [op] = recorded(tmp_path / "history.jsonl", script).ops
    assert op.err == (said and f"UNEXPECTED: ValueError: {said}")
