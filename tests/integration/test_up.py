"""`dledger up` with real processes: serve, survive a killed member, stop in order, start again."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dledger_client import Admin
from dledger_proto.network.ports import free_ports

DEADLINE_SECONDS = 60.0
COMMAND = [sys.executable, "-m", "dledger_broker.cli"]
T = TypeVar("T")


def seven_ports() -> int:
    """Return the first of the consecutive free ports that three members and a name server take."""
    return free_ports(1, width=7)[0]


def eventually(look: Callable[[], T | None], what: str) -> T:
    """Return the first true result; AssertionError naming `what` at the deadline."""
    until = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        pause.wait(0.05)
    raise AssertionError(f"not within {DEADLINE_SECONDS} s: {what}")


class Up:
    """A running `dledger up --json`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--folder", str(folder), "--json", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def event(self, kind: str) -> dict[str, Any]:
        """Return the next event, which must be of this kind."""
        try:
            event = self._events.get(timeout=DEADLINE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no event {kind}; {self.logs()}") from None
        assert event["event"] == kind, f"{event}; {self.logs()}"
        return event

    def logs(self) -> str:
        """What the processes printed last."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log")
        )

    def end(self, number: signal.Signals) -> int:
        """Signal it and wait."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def errors(self) -> str:
        """What it wrote to standard error, after its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def up(folder: Path, *arguments: str) -> Generator[Up]:
    """Run the command; kill it at the end if it is still there (its processes end with it)."""
    running = Up(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)
        for pipe in (running.process.stdout, running.process.stderr):
            assert pipe is not None
            pipe.close()


def run(name_server: str, *arguments: str, stdin: bytes = b"") -> tuple[int, Any, str]:
    """Run a command with --json: exit code, the document, standard error."""
    ended = subprocess.run(
        [*COMMAND, *arguments, "--json", "--name-servers", name_server],
        input=stdin, capture_output=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    documents = [json.loads(line) for line in ended.stdout.splitlines()]
    return ended.returncode, documents, ended.stderr.decode()


def status(name_server: str) -> dict[str, dict[str, Any]]:
    """Return each member's row."""
    _, documents, _ = run(name_server, "status")
    return {row["member"]: row for row in documents[0]} if documents else {}


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def children_of(pid: int) -> dict[str, int]:
    """Return the processes that `up` started: command line to process id."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdigit() and int(stat[1]) == pid:
                found[(entry / "cmdline").read_text().replace("\0", " ")] = int(entry.name)
        except (OSError, IndexError):
            continue
    return found


def pid_of(running: Up, member: str) -> int:
    pids = [
        pid
        for line, pid in children_of(running.process.pid).items()
        if f"/{member}/config.toml" in line
    ]
    assert len(pids) == 1, pids
    return pids[0]


def check_groups(running: Up) -> None:
    """Ctrl-C does not reach the processes: groups of their own. They share the owner's session."""
    pids = children_of(running.process.pid).values()
    assert len(pids) == 4
    assert {os.getpgid(pid) for pid in pids} == set(pids)
    assert {os.getsid(pid) for pid in pids} == {os.getsid(running.process.pid)}


def check_second_is_refused(running: Up) -> None:
    second = subprocess.run(
        [*COMMAND, "up", "--folder", str(running.folder)],
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert second.stderr == (
        f"error: the cluster in {running.folder} is in use by process {running.process.pid}; one "
        "`dledger up` runs per folder\n"
    )


def test_serve_kill_a_member_stop_and_start_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    port = seven_ports()
    with up(folder, "--port", str(port)) as running:
        serving = running.event("serving")
        assert serving["name_server"] == f"127.0.0.1:{port}"
        assert serving["members"] == {
            f"n{number}": f"127.0.0.1:{port + number}" for number in (1, 2, 3)
        }
        name_server = serving["name_server"]
        code, (created,), error = run(name_server, "topic", "create", "kept", "--queues", "2")
        assert (code, error) == (0, "")
        code, documents, error = run(name_server, "send", "kept", "one", "two", "--queue", "1")
        assert (code, [row["offset"] for row in documents[0]]) == (0, [0, 1]), error

        # kill -9 of the leader: the others go on, it is started again and catches up.
        leader = eventually(
            lambda: next(
                (name for name, row in status(name_server).items() if row["role"] == "leader"), None
            ),
            "a leader",
        )
        os.kill(pid_of(running, leader), signal.SIGKILL)
        ended = running.event("ended")
        assert (ended["process"], ended["code"], ended["restart_s"]) == (leader, -9, 0.5)
        code, documents, error = run(name_server, "send", "kept", "three", "--queue", "1")
        assert (code, documents[0][0]["offset"]) == (0, 2), error

        def caught_up() -> bool:
            rows = status(name_server)
            digests = {row.get("digest") for row in rows.values()}  # none: not reached just now
            return len(rows) == 3 and len(digests) == 1 and None not in digests

        eventually(caught_up, "three members with one digest")

        check_groups(running)
        check_second_is_refused(running)
        assert running.end(signal.SIGINT) == 0, running.logs()
        running.event("stopped")
        assert not any(listening(port + number) for number in range(4))

    with up(folder) as running:
        name_server = running.event("serving")["name_server"]
        assert name_server == f"127.0.0.1:{port}", "the same cluster"
        code, documents, error = run(name_server, "tail", "kept", "--queue", "1")
        assert (code, error) == (0, "")
        assert [(row["offset"], row["body"]) for row in documents] == [
            (0, "one"),
            (1, "two"),
            (2, "three"),
        ]
        code, documents, _ = run(name_server, "topic", "describe", "kept")
        assert documents[0]["id"] == created["id"]
        assert running.end(signal.SIGTERM) == 0


def holds_and_fifo(name_server: str, queue: str) -> None:
    """A hold stops a trim until it is released; a FIFO topic wants ordering keys."""
    with Admin(name_server) as admin:
        admin.hold("reader", "t", int(queue), 1000, 600_000)
        assert [hold.owner for hold in admin.holds("t", int(queue))] == ["reader"]
        assert admin.holds("t", (int(queue) + 1) % 4) == []
    code, (rows,), _ = run(name_server, "hold", "list")
    assert [(row["topic"], row["owner"], row["offset"]) for row in rows] == [("t", "reader", 1000)]
    trim = ("trim", "t", "-q", queue, "--offset", "1001", "-y")
    code, _, error = run(name_server, *trim)
    assert (code, "reader holds the queue from offset 1000 on, until 20" in error) == (1, True)
    assert run(name_server, "hold", "release", "t", "reader", "-y")[0] == 0
    assert run(name_server, "hold", "list")[1] == [[]]
    assert run(name_server, *trim)[0] == 0

    assert run(name_server, "topic", "create", "fifo", "--type", "fifo")[0] == 0
    code, _, error = run(name_server, "send", "fifo", "x")
    assert (code, "each message needs an ordering_key" in error) == (2, True)
    assert run(name_server, "send", "fifo", "x", "--ordering-key", "k")[0] == 0


def test_commands_on_a_running_cluster(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--port", str(seven_ports())) as running:
        name_server = running.event("serving")["name_server"]
        lines = b"".join(b"%d\r\n" % number for number in range(2_000)) + b"\n\xff\xfe"
        code, (summary,), error = run(name_server, "send", "t", "--ordering-key", "k", stdin=lines)
        assert (code, error) == (0, "")
        assert (summary["stored"], summary["failed"], summary["queues"]) == (2_002, 0, 1)
        assert summary["acknowledgement"] == "majority-synced"

        code, rows, error = run(name_server, "tail", "t")
        assert (code, error) == (0, "")
        bodies = [row.get("body") for row in rows]
        assert bodies == [*(f"{number}\r" for number in range(2_000)), "", None], "in order"
        assert rows[-1]["body_base64"] == "//4="
        queue = str(rows[0]["queue"])

        _, rows, _ = run(name_server, "tail", "t", "-q", queue, "--from", "1999", "--limit", "2")
        assert [row["offset"] for row in rows] == [1999, 2000]
        _, rows, _ = run(name_server, "tail", "t", "--from", "2013-01-01T00:00:00Z", "--limit", "1")
        assert [row["offset"] for row in rows] == [0]
        assert run(name_server, "tail", "t", "--from", "2999-01-01T00:00:00Z")[:2] == (0, [])
        code, _, error = run(name_server, "tail", "t", "-q", "99")
        assert (code, error) == (2, "error: topic t has queues 0 to 3, not 99\n")
        code, _, error = run(name_server, "tail", "nowhere")
        assert (code, error.split(":")[1]) == (1, " TOPIC_NOT_FOUND")

        offsets = ("offsets", "t", "-g", "readers", "--reset", "7")
        code, _, error = run(name_server, *offsets)
        assert (code, "holds 0 to 0; give --queue" in error) == (2, True), error
        code, (rows,), _ = run(name_server, *offsets, "-q", queue)
        assert (code, [(row["committed"], row["lag"]) for row in rows]) == (0, [(7, 1995)])
        code, (rows,), _ = run(name_server, "trim", "t", "-q", queue, "--offset", "1000", "-y")
        assert (code, rows[0]["minimum"]) == (0, 1000)
        _, rows, _ = run(name_server, "tail", "t", "-q", queue, "--limit", "1")
        assert rows[0]["offset"] == 1000
        code, _, error = run(name_server, "trim", "t", "-q", queue, "--offset", "5000", "-y")
        assert (code, error) == (
            1,
            "error: OFFSET_OUT_OF_RANGE: offset 5000, the queue ends at 2002\n",
        )

        holds_and_fifo(name_server, queue)

        code, (rows,), error = run(name_server, "transfer")
        assert code == 0, error
        assert rows[0]["leader"] == next(
            name for name, row in status(name_server).items() if row["role"] == "leader"
        )
        code, (rows,), error = run(name_server, "bench", "--seconds", "0.3", "--size", "100")
        assert (code, error) == (0, "")
        assert [row["mode"] for row in rows] == ["batched", "lone", "read"]
        assert all(row["messages"] > 0 and row["failed"] == 0 for row in rows)
        code, _, error = run(name_server, "send", "t/1", "x")
        assert (code, error.split(":")[1]) == (2, " MESSAGE_ILLEGAL")


def test_following_sees_what_is_sent_later_and_ends_at_its_limit(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--port", str(seven_ports())) as running:
        name_server = running.event("serving")["name_server"]
        assert run(name_server, "topic", "create", "t")[0] == 0
        tail = subprocess.Popen(
            [*COMMAND, "tail", "t", "-f", "--from", "end", "--limit", "3", "-n", name_server],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            # Where the end was when it began is not visible from here: send until it has three.
            sent = 0
            while tail.poll() is None and sent < 200:
                assert run(name_server, "send", "t", f"m{sent}", "--ordering-key", "k")[0] == 0
                sent += 1
            assert tail.wait(DEADLINE_SECONDS) == 0
            out, err = tail.communicate()
            numbers = [int(line.split("\t")[4][1:]) for line in out.splitlines()]
            assert (len(numbers), err) == (3, "")
            assert numbers == list(range(numbers[0], numbers[0] + 3)), "none is missing"
        finally:
            tail.kill()
            tail.wait()


def test_killing_the_command_leaves_no_process_and_no_lock_behind(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with up(folder, "--port", str(seven_ports())) as running:
        running.event("serving")
        pids = list(children_of(running.process.pid).values())
        assert len(pids) == 4
        running.process.kill()
        running.process.wait()
        # Started at once, it waits for what is still ending.
        with up(folder) as again:
            again.event("serving")
            # Ended ones may wait for whoever adopted them, as zombies.
            eventually(lambda: not any(map(_runs, pids)) or None, "the end of the old processes")


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_member_that_cannot_run_stays_down_and_the_others_serve(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with up(folder, "--port", str(seven_ports())) as running:
        name_server = running.event("serving")["name_server"]
        assert run(name_server, "topic", "create", "t")[0] == 0
    data = folder / "n2" / "data" / "group-1"
    hard_state = bytearray((data / "hard_state").read_bytes())
    hard_state[-1] ^= 1
    (data / "hard_state").write_bytes(hard_state)
    with up(folder) as running:
        events = [running.event(kind) for kind in _next_two(running)]
        kinds = {event["event"]: event for event in events}
        assert (kinds["ended"]["process"], kinds["ended"]["code"]) == ("n2", 65)
        assert kinds["ended"]["restart_s"] is None
        assert kinds["serving"]["leader"] in {"n1", "n3"}
        code, _, _ = run(name_server, "topic", "describe", "t")
        assert code == 0
    # Set aside, the member returns as a wiped one and is filled again.
    repaired = subprocess.run(
        [*COMMAND, "repair", str(folder / "n2"), "--yes"],
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert repaired.returncode == 0, repaired.stderr
    assert "hard_state: the stored crc is" in repaired.stdout
    with up(folder) as running:
        running.event("serving")

        def filled() -> bool:
            rows = status(name_server)
            return (
                len(rows) == 3
                and rows["n2"]["role"] in {"follower", "leader"}
                and len({row.get("digest") for row in rows.values()}) == 1
            )

        eventually(filled, "n2 out of quarantine with the others' digest")


def _next_two(running: Up) -> Generator[str]:
    """The order of `ended` and `serving` is open: yield whichever kind comes."""
    for _ in range(2):
        event = running._events.get(timeout=DEADLINE_SECONDS)
        running._events.put(event)
        yield event["event"]


def test_taken_port_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as holder:
        port = seven_ports()
        holder.bind(("127.0.0.1", port + 2))
        holder.listen()
        with up(tmp_path / "data", "--port", str(port)) as running:
            assert running.process.wait(DEADLINE_SECONDS) == 2
            assert running.errors() == (
                f"error: port {port + 2} for n2 is taken: Address already in use; "
                "stop the process that uses it, "
                "or choose another --port\n"
            )
        assert not listening(port)
        assert not (tmp_path / "data" / "cluster.json").exists(), "another --port may be tried"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--members", "5"], "has 3 members, not 5; leave this option out"),
        (["--port", "1234"], ", not 1234; leave this option out"),
        (["--flush", "maybe"], "--flush: maybe, must be sync or async"),
        (["--members", "9"], "Invalid value for '--members'"),
    ],
)
def test_another_shape_is_refused(tmp_path: Path, arguments: list[str], line: str) -> None:
    ports = dict(zip(("namesrv", "n1", "n2", "n3"), free_ports(4), strict=True))
    record = {"cluster": "local", "group": "group-1", "ports": ports}
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cluster.json").write_text(json.dumps(record))
    with up(folder, *arguments) as running:
        assert running.process.wait(DEADLINE_SECONDS) == 2
        assert line in running.errors()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with up(tmp_path / "file" / "data") as running:
        assert running.process.wait(DEADLINE_SECONDS) == 2
        assert running.errors().startswith(
            f"error: --folder: {tmp_path}/file/data: Not a directory"
        )
