"""Disks whose power comes back, and who else may have kept their dead file systems."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from jepsen_tests.backends.netns import NetnsBackend
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import CannotRun, WantedCluster
from jepsen_tests.backends.troubles import loop_disk, namespaces
from jepsen_tests.backends.troubles.loop_disk import DROP_JOURNAL, LoopDisk
from jepsen_tests.errors import HarnessFailure

needs_disks = pytest.mark.skipif(bool(loop_disk.why_not()), reason=loop_disk.why_not())
BYTES = 16 << 20
RUN = """
import sys
from pathlib import Path
from jepsen_tests.backends.troubles import namespaces
from jepsen_tests.backends.troubles.loop_disk import DROP_JOURNAL, LoopDisk
namespaces.become(["mount"], [sys.executable, *sys.orig_argv[1:]])
with LoopDisk(Path(sys.argv[1]), Path(sys.argv[2]), 16 << 20) as disk:
    print("mounted", flush=True)
    input()
    disk.cut_power(DROP_JOURNAL)
    disk.power_on()
    print("lives", flush=True)
    input()
"""


@contextmanager
def child(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a process that says lines, and ends when its input does."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.communicate()


def line(process: "subprocess.Popen[str]", *, after: str = "") -> str:
    """Return what it says next, after it has been told something."""
    assert process.stdin is not None
    assert process.stdout is not None
    if after:
        process.stdin.write(after)
        process.stdin.flush()
    return process.stdout.readline().strip()


def copy_of_mounts() -> list[str]:
    """Return the command of a process that holds a copy of all mounts that we see."""
    return ["unshare", "--mount", "sh", "-c", "echo copied; cat >/dev/null"]


@pytest.fixture
def disk(tmp_path: Path) -> Generator[LoopDisk]:
    with LoopDisk(tmp_path / "n1.img", tmp_path / "n1", BYTES) as disk:
        yield disk


@needs_disks
def test_a_disk_has_its_power_back(disk: LoopDisk) -> None:
    (disk.mount / "lost").write_text("x")
    disk.cut_power(DROP_JOURNAL)
    disk.power_on()
    assert not (disk.mount / "lost").exists()
    (disk.mount / "kept").write_text("x")


@needs_disks
def test_one_whose_mount_somebody_copied_is_named_and_lives_when_the_copy_is_gone(
    disk: LoopDisk,
) -> None:
    with child(copy_of_mounts()) as other:
        assert line(other) == "copied"
        disk.cut_power(DROP_JOURNAL)
        with pytest.raises(HarnessFailure, match=r"n1\.img: mounted again, but dead"):
            disk.power_on()
    disk.power_on()


@needs_disks
def test_what_a_run_mounts_is_its_own_so_that_nobody_copies_it(tmp_path: Path) -> None:
    image, mount = str(tmp_path / "n1.img"), str(tmp_path / "n1")
    with child([sys.executable, "-c", RUN, image, mount]) as run:
        assert line(run) == "mounted"
        assert mount not in Path("/proc/mounts").read_text()
        with child(copy_of_mounts()) as other:
            assert line(other) == "copied"
            assert line(run, after="\n") == "lives"
            line(run, after="\n")
    assert run.returncode == 0


@needs_disks
def test_who_still_uses_the_old_mount_is_waited_for(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = (disk.mount / "used").open("w")
    waited = threading.Event()

    def wait(_seconds: float) -> None:
        used.close()
        waited.set()

    monkeypatch.setattr("jepsen_tests.backends.troubles.loop_disk.time.sleep", wait)
    disk.cut_power(DROP_JOURNAL)
    disk.power_on()
    assert waited.is_set()


@needs_disks
def test_and_named_with_the_disk_when_that_takes_too_long(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_disk, "UNMOUNT_SECONDS_MAX", 0.0)
    with (
        (disk.mount / "used").open("w"),
        pytest.raises(HarnessFailure, match=r"n1\.img: .*busy"),
    ):
        disk.power_on()


def test_without_root_there_is_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_disk, "why_not", lambda: "no root")
    assert ProcessBackend.own_namespaces() == ()
    monkeypatch.setattr(os, "execvpe", lambda *_: pytest.fail("nothing is wanted"))
    namespaces.become(ProcessBackend.own_namespaces(), ["true"])


def test_who_is_inside_goes_on_and_a_child_of_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], str]] = []

    def execute(_file: str, command: list[str], environment: dict[str, str]) -> None:
        asked.append((command, environment[namespaces.INSIDE_VARIABLE]))

    monkeypatch.setattr(os, "execvpe", execute)
    monkeypatch.delenv(namespaces.INSIDE_VARIABLE, raising=False)
    namespaces.become(["net", "mount"], ["run", "this"])
    ((command, inside),) = asked
    assert command == [
        "unshare", "--net", "--mount", "--propagation", "private", "run", "this",
    ]  # fmt: skip
    monkeypatch.setenv(namespaces.INSIDE_VARIABLE, inside)
    namespaces.become(["net", "mount"], ["run", "this"])
    namespaces.become(["mount"], ["run", "this"])
    assert len(asked) == 1
    monkeypatch.setattr(os, "getpid", lambda: 1 << 30)
    assert not namespaces.is_inside("mount")


def test_members_enter_their_network_and_keep_our_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jepsen_tests.backends.netns.why_not", lambda *_: "")
    backend = NetnsBackend(WantedCluster(tmp_path))
    assert backend._within("n1") == ["nsenter", "--net=/run/netns/n1"]
    assert backend._within("ns1") == []


def test_root_that_may_make_no_namespaces_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: the process backend goes without disks, netns cannot run."""
    tool = tmp_path / "unshare"
    tool.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    namespaces.why_not.cache_clear()
    try:
        assert "Operation not permitted" in namespaces.why_not("mount")
        assert ProcessBackend.own_namespaces() == ()
        with pytest.raises(CannotRun):
            NetnsBackend.own_namespaces()
    finally:
        namespaces.why_not.cache_clear()
