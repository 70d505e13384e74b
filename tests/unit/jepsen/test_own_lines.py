"""Shell lines that hurt a cluster of one's own: they end with all they wait for."""

import asyncio
import os
import select
from pathlib import Path

import pytest

from jepsen_tests.backends import own
from jepsen_tests.backends.own import Shell
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
