"""What ends a member: the exit code says whose turn it is, the log line names the place."""

import asyncio
import io
from pathlib import Path

import pytest
import structlog

from dledger.log.errors import DamagedFile, LogFailed, NewerFormat
from dledger.state.commands.registry import UnknownCommand
from dledger.store.store import DamagedStore, NewerStore, StoreFailed
from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.config.sections import LogConfig
from dledger_broker.process.logs import Quiet, set_up_logs
from dledger_broker.process.member import STARTS_ANEW, Member, exit_code_of
from dledger_broker.process.platform import of_this_machine
from dledger_broker.read.batches import DamagedBatch
from dledger_proto.exit_codes import Exit
from tests.unit.broker.fakes import ManualClock


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DamagedFile("log/0.log", "cut"), 65),
        (DamagedBatch("log/0.log: the batch at position 5"), 65),
        (DamagedStore("state: data.mdb has 10 bytes, its newest commit needs 4096"), 65),
        (NewerFormat("identity", "format version 2, this dledger knows 1"), 76),
        (NewerStore("state: format version 2, this dledger knows 1"), 76),
        (UnknownCommand("command 99"), 76),
        (StoreFailed("state: a save failed"), 74),
        (LogFailed(OSError(5, "EIO")), 74),
        (OSError(5, "EIO"), 74),
        (AssertionError("ours"), 70),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    """Damage wants `dledger repair` (65), a failing disk does not (74)."""
    assert exit_code_of(error) == code


def test_a_traceback_shows_no_values_of_variables() -> None:
    """They may be message bodies, and rendering them holds the loop."""
    stream = io.StringIO()
    set_up_logs(LogConfig(), stream=stream)
    try:
        secret = bytes(range(65, 85))
        try:
            int(secret[:0])
        except ValueError:
            structlog.get_logger().exception("a bug")
    finally:
        structlog.reset_defaults()
    shown = stream.getvalue()
    assert "ValueError" in shown
    assert secret.decode() not in shown


def test_strangers_do_not_fill_the_log() -> None:
    """One line of a kind per period, which says how many were left out."""
    clock = ManualClock()
    quiet = Quiet(clock, seconds=10)
    assert [quiet.admit("a"), quiet.admit("a"), quiet.admit("a")] == [0, None, None]
    assert quiet.admit("b") == 0
    clock.now += 10
    assert [quiet.admit("a"), quiet.admit("a"), quiet.admit("b")] == [2, None, 0]


@pytest.mark.parametrize(
    ("is_stopped", "has_closed", "code"),
    [(False, True, STARTS_ANEW), (True, True, Exit.OK), (False, False, Exit.STORAGE)],
)
def test_the_end_after_a_refill(
    monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool, has_closed: bool, code: int
) -> None:
    """A signal that comes while the member drains for a new start ends it for good."""

    async def run() -> int:
        member = Member(
            MemberConfig(
                cluster="c",
                member="a",
                listen="127.0.0.1:1",
                folder=Path("unused"),
                groups=(GroupConfig(name="g", members={"a": "127.0.0.1:1"}),),
            ),
            of_this_machine(),
        )

        async def drain() -> bool:
            if is_stopped:
                member.request_stop()
            return has_closed

        monkeypatch.setattr(member, "_drain", drain)
        member._request_new_start()
        return await member.run()

    assert asyncio.run(run()) == code
