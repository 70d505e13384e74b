"""Shell lines that hurt a cluster of one's own: they end with all they wait for."""

import asyncio
import json
import os
import select
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jepsen_tests.backends import own
from jepsen_tests.backends.own import OF_LINKS, OF_PROCESSES, OwnBackend, Shell
from jepsen_tests.backends.surface import Trouble, TroubleKind, WantedCluster
from jepsen_tests.errors import HarnessFailure

GONE_SECONDS_MAX = 60.0
"""For who was killed to be gone; shorter than what the line waits for."""
ADDRESSES = {"n1": "127.0.0.1:1"}


def run(line: str) -> None:
    asyncio.run(Shell({"kill": line}, ADDRESSES).kill("n1"))


def test_a_line_that_takes_too_long_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)  # so that it ends also when the line did not come so far
    monkeypatch.setattr(own, "COMMAND_SECONDS_MAX", 0.3)
    try:
        with pytest.raises(HarnessFailure, match="none within"):
            run(f"(exec sleep 300) >{pipe}; true")
        os.close(writer)
        assert select.select([reader], [], [], GONE_SECONDS_MAX)[0], "somebody holds it still"
    finally:
        os.close(reader)


def test_what_a_line_leaves_running_goes_on(tmp_path: Path) -> None:
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        run(f"exec 9>{pipe}; sleep 300 & echo $! >{tmp_path}/pid")
        with pytest.raises(BlockingIOError):
            os.read(reader, 100)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)
        os.close(reader)


LINES = {
    name: f'echo {name} $NODE $PEER >>"$SAID"; test ! -e "$SAID.refused"'
    for name in (*OF_PROCESSES, *OF_LINKS)
}
TWO = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:2"}


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lines write what they were told."""
    path = tmp_path / "said"
    monkeypatch.setenv("SAID", str(path))
    return path


def test_what_was_begun_and_is_not_undone_is_undone_in_the_end_and_once(said: Path) -> None:
    shell = Shell(LINES, TWO)

    async def story() -> None:
        await shell.kill("n1")
        await shell.pause("n2")
        await shell.trouble([("n1", "n2"), ("n2", "n1")], Trouble(TroubleKind.CUT))
        await shell.heal([("n1", "n2")], TroubleKind.CUT)

    asyncio.run(story())
    said.write_text("")
    for _ in range(2):
        asyncio.run(shell.undo_all())
    assert said.read_text().splitlines() == ["heal n1 n2", "resume n2", "start n1"]


def test_so_is_what_was_broken_off_while_it_was_done_or_undone(
    said: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(LINES, TWO)

    async def story() -> None:
        run, shell_run = asyncio.Event(), shell._run

        async def hang(*_: str) -> None:
            run.set()
            await asyncio.Event().wait()

        await shell.pause("n1")
        links = [("n1", "n2"), ("n2", "n1")]
        monkeypatch.setattr(shell, "_run", hang)
        for act in (
            shell.resume("n1"),
            shell.kill("n2"),
            shell.trouble(links, Trouble(TroubleKind.CUT)),
        ):
            run.clear()
            doing = asyncio.ensure_future(act)
            async with asyncio.timeout(20):
                await run.wait()
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        monkeypatch.setattr(shell, "_run", shell_run)

    asyncio.run(story())
    said.write_text("")
    asyncio.run(shell.undo_all())
    assert said.read_text().splitlines() == ["heal n2 n1", "resume n1", "start n2"]


def test_what_cannot_be_undone_keeps_nothing_else_and_is_named(said: Path) -> None:
    shell = Shell(LINES, TWO)

    async def story() -> None:
        await shell.pause("n1")
        await shell.kill("n2")

    asyncio.run(story())
    said.with_name("said.refused").touch()
    said.write_text("")
    with pytest.raises(HarnessFailure, match=r"still hurt; do by hand: resume n1 .*; start n2 "):
        asyncio.run(shell.undo_all())
    assert said.read_text().splitlines() == ["resume n1", "start n2"]


@pytest.mark.parametrize("end", [OwnBackend.stop, OwnBackend.abort])
def test_a_run_leaves_the_cluster_as_it_was_also_when_it_is_ended_at_once(
    tmp_path: Path, said: Path, end: Callable[[OwnBackend], Awaitable[None]]
) -> None:
    path = tmp_path / "commands.toml"
    path.write_text("".join(f"{name} = {json.dumps(line)}\n" for name, line in LINES.items()))
    backend = OwnBackend(WantedCluster(tmp_path, bootstrap="127.0.0.1:1", commands=path))
    backend._addresses.update(TWO)

    async def story() -> None:
        assert backend.processes is not None
        await backend.processes.kill("n1")
        await end(backend)

    asyncio.run(story())
    assert said.read_text().splitlines() == ["kill n1", "start n1"]
