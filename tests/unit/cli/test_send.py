"""`dledger send` with lines: sent as they come, counted truly, ended by errors and interrupts.

The writer of each test goes on when it has seen that the line before is stored.
"""

import asyncio
import json
import queue

import pytest

from dledger_broker.cli.messages.send import Dressing, send_lines
from dledger_client import AsyncProducer, ProducerConfig
from dledger_proto.errors import Code
from dledger_proto.exit_codes import Exit
from dledger_proto.limits import BODY_SIZE_MAX
from tests.unit.client.fake_member import Does, FakeCluster
from tests.unit.client.helpers import run
from tests.waiting import until

PLAIN = Dressing(
    tag="", keys=(), properties={}, ordering_key=None, queue=0, delay_ms=None, deliver_at_ms=None,
    delay_level=None, priority=None,
)  # fmt: skip


class Typed:
    """A command that reads what the test types."""

    def __init__(self, cluster: FakeCluster, config: ProducerConfig | None = None) -> None:
        self.cluster = cluster
        self.lines: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
        self.task = asyncio.get_running_loop().create_task(
            send_lines(
                "t", self._read, PLAIN,
                lambda: AsyncProducer(cluster.bootstrap, config), as_json=True,
            )
        )  # fmt: skip

    def _read(self, _size: int) -> bytes:
        data = self.lines.get()
        if isinstance(data, OSError):
            raise data
        return data

    async def stores(self, *bodies: bytes) -> None:
        await until(lambda: self.cluster.log("t", 0) == list(bodies), f"{bodies} are stored")


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, object], str]:
    shown = capsys.readouterr()
    return json.loads(shown.out), shown.err


def test_each_line_is_stored_before_the_next_one_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster)
            for number in range(5):
                typed.lines.put(b"%d\n" % number)
                await typed.stores(*(b"%d" % each for each in range(number + 1)))
            typed.lines.put(b"end\r")
            typed.lines.put(b"")
            assert await typed.task == Exit.OK
            assert cluster.log("t", 0)[-1] == b"end\r"

    run(body())
    row, errors = printed(capsys)
    assert (row["stored"], row["failed"], errors) == (6, 0, "")


def test_a_message_has_its_budget_from_when_it_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The source says nothing for longer than a budget, and nothing fails by it."""

    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster, ProducerConfig(timeout_ms=1_000))
            typed.lines.put(b"0\n")
            await typed.stores(b"0")
            now = asyncio.get_running_loop().time
            late = now() + 1.2
            await until(lambda: now() > late, "the budget of the first message is over")
            typed.lines.put(b"1\n")
            await typed.stores(b"0", b"1")
            typed.lines.put(b"")
            assert await typed.task == Exit.OK

    run(body())
    assert printed(capsys)[0]["stored"] == 2


def test_no_input_is_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster)
            typed.lines.put(b"")
            assert await typed.task == Exit.OK

    run(body())
    row, errors = printed(capsys)
    assert (row["stored"], row["failed"], errors) == (0, 0, "")


def test_the_worst_outcome_counts_and_the_others_are_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster, ProducerConfig(batch_records=1))
            typed.lines.put(b"0\n")
            await typed.stores(b"0")
            cluster.leader().script.append(Code.NO_PERMISSION)
            typed.lines.put(b"refused\n")
            await until(lambda: not cluster.leader().script, "it is refused")
            typed.lines.put(bytes(BODY_SIZE_MAX + 1) + b"\n1\n")
            await typed.stores(b"0", b"1")
            typed.lines.put(b"")
            assert await typed.task == Exit.BAD_INPUT

    run(body())
    row, errors = printed(capsys)
    assert (row["stored"], row["failed"]) == (2, 2)
    assert row["errors"] == {"NO_PERMISSION": 1, "MESSAGE_TOO_LARGE": 1}
    assert f"a line has {BODY_SIZE_MAX + 1} bytes, at most {BODY_SIZE_MAX}" in errors


def test_a_source_that_breaks_ends_the_command_after_what_it_gave(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster)
            typed.lines.put(b"0\nhalf a li")
            typed.lines.put(OSError(5, "Input/output error"))
            assert await typed.task == Exit.FAILED
            assert cluster.log("t", 0) == [b"0"]

    run(body())
    row, errors = printed(capsys)
    assert row["stored"] == 1
    assert errors == "error: the input cannot be read any further: Input/output error\n"


def test_an_interrupt_settles_what_is_on_its_way_and_tells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster)
            typed.lines.put(b"0\n")
            await typed.stores(b"0")
            cluster.leader().hold_answers.clear()
            typed.lines.put(b"1\n")
            await typed.stores(b"0", b"1")
            typed.task.cancel()  # what asyncio.run does at Ctrl-C
            cluster.leader().hold_answers.set()
            with pytest.raises(asyncio.CancelledError):
                await typed.task
            typed.lines.put(b"")

    run(body())
    row, _ = printed(capsys)
    assert (row["stored"], row["failed"]) == (2, 0)


def test_a_dead_cluster_fails_each_message_after_its_own_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            typed = Typed(cluster, ProducerConfig(timeout_ms=1_500))
            typed.lines.put(b"0\n")
            await typed.stores(b"0")  # connected: what comes now is sent, whatever else is slow
            cluster.leader().script.extend([Does.HANG] * 50)
            typed.lines.put(b"1\n2\n")
            typed.lines.put(b"")
            assert await typed.task == Exit.UNKNOWN_OUTCOME

    run(body())
    assert printed(capsys)[0]["failed"] == 2
