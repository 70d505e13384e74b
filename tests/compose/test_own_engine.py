"""An engine of our own ends with who started it, however that ends. Real, as root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from jepsen_tests.docker.engine import ROOT
from jepsen_tests.docker.traces import Traces, take_away
from tests.waiting import wait_until

pytestmark = pytest.mark.compose

USES_AN_ENGINE: Final = """
from threading import Event
from jepsen_tests.docker.engine import NoEngine, engine
try:
    with engine(lambda _: None) as used:
        whose = "ours" if used.is_ours else "not ours"
        print(whose, used.environment.get("DOCKER_HOST"), flush=True)
        Event().wait()  # to be killed
except NoEngine as error:
    print("none", error, flush=True)
"""
END_SECONDS: Final = 60.0


def test_our_engine_ends_with_a_harness_that_is_killed() -> None:
    """Else it keeps its bridge, and the next engine's containers reach nobody."""
    before = Traces.look("dledger-engine-of-nobody")
    command = [sys.executable, "-c", USES_AN_ENGINE]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        what, _, where = process.stdout.readline().strip().partition(" ")
        process.kill()
    if what != "ours":
        pytest.skip(f"no engine of our own: {what} {where}")
    folder = os.path.dirname(where.removeprefix("unix://"))
    try:
        wait_until(lambda: not any(_names(folder)), "the end of the engine", END_SECONDS)
    finally:
        take_away(before, f"dledger-engine-{process.pid}")
        shutil.rmtree(folder, ignore_errors=True)


def _names(folder: str) -> Iterator[str]:
    """Yield the processes that name a folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            line = path.read_bytes().decode(errors="replace")
            if folder in line:
                yield line
