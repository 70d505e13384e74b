"""`dledger up`: a name server and one broker group on this machine, in one folder.

Owns the supervision: start, wait until it serves, restart what crashed, stop in order. The
processes and files are those of `local/cluster.py`.
"""

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import grpc
import typer

from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    bad_input,
    note,
    print_error,
    print_json,
    print_rows,
    say,
)
from dledger_broker.local.cluster import (
    NAME_SERVER,
    STOP_SECONDS,
    BadRecord,
    FolderInUse,
    LocalCluster,
    OtherCluster,
    PortTaken,
)
from dledger_proto.exit_codes import Exit
from dledger_proto.names import NO_SUCH_TOPIC
from dledger_proto.network.tls import TlsFolder
from dledger_proto.network.tls_files import FOLDER_VARIABLE
from dledger_proto.rpc.raw import CHANNEL_OPTIONS, open_sync_channel, sync_unary
from dledger_proto.v1.routes_pb2 import RoutesReply, RoutesRequest

DEFAULT_PORT: Final = 9876
SERVING_SECONDS_MAX: Final = 60.0
"""How long the first leader may take before `up` says that it still waits."""
LOOK_SECONDS: Final = 0.1
"""Between two looks at the processes."""
RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 10.0
GROUPS_ALONE: Final = RoutesRequest(topics=[NO_SUCH_TOPIC]).SerializeToString()
HEALTHY_SECONDS: Final = 60.0
"""After running for so long, the next crash counts as the first."""
SEGMENT_SIZE_BYTES: Final = 256 << 20
"""Segments are reserved on disk when they are made: three times a GiB is much for a trial."""

_FINAL_CODES: Final[Mapping[int, str]] = {
    Exit.OK: "ended by itself",
    Exit.BAD_INPUT: "refuses its configuration",
    Exit.DAMAGED: "has damaged data: see dledger inspect, run dledger repair, then start "
    "the whole cluster again",
    Exit.PORT_TAKEN: "finds its port taken",
    Exit.FOLDER: "finds its data folder in use, or another member's",
    Exit.NEWER_FORMAT: "has data of a newer format: start the version that wrote it, "
    "or a later one",
}
"""Exit codes after which starting again would end the same way."""

EPILOG: Final = (
    "A process that crashes is restarted after 0.5 s, doubling up to 10 s. A process that cannot "
    "run (damaged data, taken port, bad configuration) is reported and stays down while the "
    "others run: repair it, then stop this command and start it again. "
    "The command ends when no member is left."
)


def up(
    folder: Annotated[Path, typer.Option(help="Folder for data and logs.")] = Path("data"),
    members: Annotated[
        int | None, typer.Option(min=1, max=7, help="Members of a new cluster. [default: 3]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_000, help="Port of the name server; members follow. [default: 9876]"
        ),
    ] = None,
    flush: Annotated[
        str, typer.Option(help="sync; or async: faster, but a power cut can lose messages")
    ] = "sync",
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="A new cluster has TLS, with certificates that are made for it."
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a name server and a group of members here until Ctrl-C. Needs no configuration.

    Started again on the same folder, the cluster continues with its data.
    """
    if flush not in {"sync", "async"}:
        bad_input(f"--flush: {flush}, must be sync or async")
    new = not (folder / "cluster.json").exists()
    cluster = LocalCluster(
        folder=folder,
        members=members or 3,
        base_port=port or (DEFAULT_PORT if new else 0),
        settings={"storage.flush": flush, "storage.segment_size_bytes": SEGMENT_SIZE_BYTES},
        secure=secure,
        die_with_owner=True,
    )
    _take(cluster)
    try:
        _prepare(cluster, members, secure=secure)
        raise typer.Exit(Supervisor(cluster, as_json=as_json).run())
    except OtherCluster as error:
        bad_input(str(error), "leave this option out, or choose another --folder")
    except BadRecord as error:
        bad_input(str(error), "restore the file, or choose another --folder")
    except PortTaken as error:
        if new:
            (folder / "cluster.json").unlink()  # nothing was started: the next try may choose anew
            bad_input(str(error), "stop the process that uses it, or choose another --port")
        bad_input(
            str(error),
            "stop the process that uses it: the cluster in this folder keeps its ports",
        )
    finally:
        cluster.give_folder()


def _prepare(cluster: LocalCluster, members: int | None, *, secure: bool) -> None:
    cluster.prepare()
    if secure and not cluster.secure:
        raise OtherCluster(f"the cluster in {cluster.folder} was made without TLS")
    if members is not None and members != cluster.members:
        raise OtherCluster(
            f"the cluster in {cluster.folder} has {cluster.members} members, not {members}"
        )
    for name in cluster.names:
        cluster.check_ports_free(name)


def _take(cluster: LocalCluster) -> None:
    """Become the folder's owner, waiting for processes of an owner that was killed."""
    deadline = time.monotonic() + STOP_SECONDS
    told = False
    while True:
        try:
            cluster.take_folder()
        except FolderInUse as error:
            if error.owner or time.monotonic() > deadline:
                raise CommandFailed(str(error), "one `dledger up` runs per folder") from None
            if not told:
                note(f"waiting: {error}")
                told = True
            threading.Event().wait(LOOK_SECONDS)
        except OSError as error:
            bad_input(f"--folder: {cluster.folder}: {error.strerror}")
        else:
            return


@dataclass(slots=True)
class Restarts:
    """When a crashed process is started again. Pure: time is passed in."""

    attempts: dict[str, int] = field(default_factory=dict[str, int])
    started_at: dict[str, float] = field(default_factory=dict[str, float])
    due: dict[str, float] = field(default_factory=dict[str, float])

    def started(self, name: str, now: float) -> None:
        """The process runs since `now`."""
        self.started_at[name] = now
        self.due.pop(name, None)

    def ended(self, name: str, code: int, now: float) -> float | None:
        """Return after how many seconds to start it again; None: never."""
        if code in _FINAL_CODES:
            return None
        if now - self.started_at.get(name, now) >= HEALTHY_SECONDS:
            self.attempts[name] = 0
        attempt = self.attempts.get(name, 0)
        self.attempts[name] = attempt + 1
        delay = min(RESTART_SECONDS_MIN * (1 << min(attempt, 16)), RESTART_SECONDS_MAX)
        self.due[name] = now + delay
        return delay

    def take_due(self, now: float) -> list[str]:
        """Return and forget what is to be started now."""
        ready = [name for name, when in self.due.items() if when <= now]
        for name in ready:
            del self.due[name]
        return ready


class Supervisor:
    """Runs the processes of a cluster until a signal comes or nothing is left to run."""

    def __init__(self, cluster: LocalCluster, *, as_json: bool) -> None:
        self._cluster = cluster
        self._as_json = as_json
        self._end = threading.Event()
        self._restarts = Restarts()
        self._reported: set[tuple[str, int]] = set()

    def run(self) -> int:
        """Start, serve, stop; return the exit code."""
        with self._signals():
            try:
                for name in self._cluster.names:
                    self._start(name)
                self._tell_when_serving()
                left = True
                while left and not self._end.wait(LOOK_SECONDS):
                    left = self._look()
                if not left:
                    print_error("no member is left", f"see the logs in {self._cluster.folder}")
                return Exit.OK if left else Exit.FAILED
            finally:
                self._stop()

    @contextmanager
    def _signals(self) -> Generator[None]:
        def end(_number: int, _frame: FrameType | None) -> None:
            self._end.set()

        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, end) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self, name: str) -> None:
        self._cluster.start(name)
        self._restarts.started(name, time.monotonic())

    def _look(self) -> bool:
        """Report what ended, start what is due; False when no member runs or will."""
        now = time.monotonic()
        for name, code in list(self._cluster.ended()):
            if (name, self._cluster.pid(name)) not in self._reported:
                self._reported.add((name, self._cluster.pid(name)))
                self._report(name, code, self._restarts.ended(name, code, now))
        for name in self._restarts.take_due(now):
            try:
                self._start(name)
            except PortTaken as error:
                print_error(str(error), f"{name} stays down")
        return any(
            self._cluster.is_running(name) or name in self._restarts.due
            for name in self._cluster.member_names
        )

    def _report(self, name: str, code: int, delay: float | None) -> None:
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if self._as_json:
            print_json({"event": "ended", "process": name, "code": code, "restart_s": delay})
        elif delay is None:
            reason = _FINAL_CODES[code]
            note(f"{name} {reason} ({how}); it stays down, see {self._cluster.folder}/{name}.log")
        else:
            note(f"{name} ended: {how}; starting it again in {delay:g} s")

    def _tell_when_serving(self) -> None:
        """Wait until the group has a leader, then print where everything is."""
        started = time.monotonic()
        told = False
        tls = TlsFolder(self._cluster.tls_folder) if self._cluster.secure else None
        with open_sync_channel(self._cluster.name_server, CHANNEL_OPTIONS, tls) as channel:
            routes = sync_unary(channel, "/dledger.v1.Routes/Get")
            while not self._end.wait(LOOK_SECONDS):
                leader = self._leader(lambda: routes(GROUPS_ALONE, 1.0))
                if leader:
                    self._tell(leader)
                    return
                if not self._look():
                    return
                if not told and time.monotonic() - started > SERVING_SECONDS_MAX:
                    told = True
                    note(f"still no leader; see the logs in {self._cluster.folder}")

    def _leader(self, get: Callable[[], bytes]) -> str:
        try:
            reply = RoutesReply.FromString(get())
        except grpc.RpcError:
            return ""
        wanted = self._cluster.group
        return next((route.leader for route in reply.groups if route.group == wanted), "")

    def _tell(self, leader: str) -> None:
        cluster = self._cluster
        addresses = {name: cluster.address(name) for name in cluster.member_names}
        if self._as_json:
            print_json(
                {
                    "event": "serving",
                    "cluster": cluster.cluster,
                    "group": cluster.group,
                    "name_server": cluster.name_server,
                    "members": addresses,
                    "leader": leader,
                    "folder": str(cluster.folder.absolute()),
                    "tls_folder": cluster.tls_folder,
                }
            )
            return
        rows: list[dict[str, object]] = [
            {"process": NAME_SERVER, "address": cluster.name_server, "role": "name server"}
        ]
        for name, address in addresses.items():
            role = "leader" if name == leader else "member"
            rows.append({"process": name, "address": address, "role": role})
        say(f"dledger is up; data and logs in {cluster.folder.absolute()}")
        print_rows(rows, ("process", "address", "role"), as_json=False)
        at = "" if cluster.ports[NAME_SERVER] == DEFAULT_PORT else f" -n {cluster.name_server}"
        if cluster.secure:
            say(f"first: export {FOLDER_VARIABLE}={shlex.quote(cluster.tls_folder)}")
        say(f'try: dledger send{at} greetings "hello"')
        say(f"     dledger tail{at} greetings --from beginning")
        say(f"     dledger status{at}")
        say("Ctrl-C stops it; the data stays.")

    def _stop(self) -> None:
        """Members first, so that they say good-bye to the name server; each within a bound."""
        if not self._as_json:
            note("stopping")
        try:
            self._cluster.stop_all()
        except subprocess.SubprocessError as error:
            print_error(f"stopping: {error}")
        if self._as_json:
            print_json({"event": "stopped"})
