"""A whole cluster on this machine: a name server and one broker group as separate processes.

Owns the folder layout, the ports, the configuration files and the processes; used by `dledger up`,
`dledger demo`, the benchmarks and the integration tests. Knows nothing of what the processes do.

    folder/cluster.json           ports and names, kept so that the next start is the same cluster
    folder/<member>/config.toml   what the member is told
    folder/<member>/data/         its log and state
    folder/<process>.log          what it printed
    folder/tls/                   with TLS: the authority, and a folder for each process
"""

import datetime as dt
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dledger_proto.network.ports import free_ports
from dledger_proto.network.tls import client_name, member_name, name_server_name

NAME_SERVER = "namesrv"
CLIENT = "local"
LOCAL_HOSTS = ("localhost", "127.0.0.1")
STOP_SECONDS = 10.0
"""How long a process may take to end after SIGTERM before it is killed."""

Setting = str | int | float | bool


class PortTaken(Exception):
    """Another process listens on a port that the cluster is to use."""


class FolderInUse(Exception):
    """Another process runs a cluster in the folder; `owner` is its id, 0 when it has ended."""

    def __init__(self, folder: Path, owner: int) -> None:
        self.owner = owner
        who = f"process {owner}" if owner else "processes of an earlier start that are still ending"
        super().__init__(f"the cluster in {folder} is in use by {who}")


class BadRecord(Exception):
    """The folder's `cluster.json` cannot be read; the message says why."""


class OtherCluster(Exception):
    """The folder holds a cluster that was made with other settings; the message names them."""


def check_port_free(port: int, purpose: str) -> None:
    """Raise PortTaken, naming the purpose, when a process listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortTaken(f"port {port} for {purpose} is taken: {error.strerror}") from error


@dataclass(slots=True)
class LocalCluster:
    """Processes of one cluster. Names: `namesrv`, and `n1`, `n2`... for the members."""

    folder: Path
    cluster: str = "local"
    group: str = "group-1"
    members: int = 3
    base_port: int = 0
    """Port of the name server, the members follow, and then their links; 0: any free ports."""
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Further keys of every member's configuration, dotted: {"storage.flush": "async"}."""
    secure: bool = False
    """TLS on every port and connection, with an authority of the cluster's own."""
    own_settings: Mapping[str, Mapping[str, Setting]] = field(
        default_factory=dict[str, Mapping[str, Setting]]
    )
    """By the name of a member: keys that it alone has. Of the name server: its options."""
    die_with_owner: bool = False
    """True: processes get SIGTERM when the thread that started them ends (Linux)."""
    ports: dict[str, int] = field(default_factory=dict[str, int])
    link_ports: dict[str, int] = field(default_factory=dict[str, int])
    """Where each member takes the links of the others."""
    processes: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, subprocess.Popen[bytes]]
    )
    lock_fd: int = -1
    """The processes inherit it, so that the folder is free only when the last one has ended."""

    def take_folder(self) -> None:
        """Become the folder's only owner; FolderInUse when it has one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock_fd = os.open(self.folder / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = int(os.pread(lock_fd, 20, 0) or b"0")
            os.close(lock_fd)
            raise FolderInUse(self.folder, owner if owner and _exists(owner) else 0) from None
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, str(os.getpid()).encode(), 0)
        self.lock_fd = lock_fd

    def give_folder(self) -> None:
        """Stop being the owner, after all processes have ended."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def prepare(self) -> None:
        """Make the folder and the configuration files, or read what an earlier start left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = self.folder / "cluster.json"
        if record.exists():
            self._take_over(record)
            if self.base_port and self.base_port != self.ports[NAME_SERVER]:
                raise OtherCluster(
                    f"the cluster in {self.folder} has its name server on port "
                    f"{self.ports[NAME_SERVER]}, not {self.base_port}"
                )
            if not self.link_ports:  # it was made before links had ports of their own
                free = free_ports(self.members)
                self.link_ports = dict(zip(self.member_names, free, strict=True))
                self._write(record)
        else:
            self._choose_ports()
            self._write(record)
        if self.secure:
            self._make_certificates()
        for name in self.member_names:
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "config.toml").write_text(self._config(name))

    @property
    def tls_folder(self) -> str:
        """The folder for clients, with TLS; else empty."""
        return str((self._tls / f"client-{CLIENT}").absolute()) if self.secure else ""

    @property
    def _tls(self) -> Path:
        return self.folder / "tls"

    def _make_certificates(self) -> None:
        """Make those that are missing, lack a name, or have lived for half of their life."""
        from dledger_broker.security.authority import (
            AUTHORITY_FOLDER,
            Authority,
            Wanted,
            is_due,
        )

        names = {name: [member_name(self.cluster, self.group, name)] for name in self.member_names}
        names[NAME_SERVER] = [name_server_name(self.cluster)]
        wanted = [Wanted(name, said, LOCAL_HOSTS) for name, said in names.items()]
        wanted.append(Wanted(f"client-{CLIENT}", [client_name(self.cluster, CLIENT)]))
        if not (self._tls / AUTHORITY_FOLDER).exists():
            Authority.make(self.cluster).store(self._tls)
        authority = Authority.load(self._tls)
        for each in wanted:
            if is_due(self._tls, each, dt.datetime.now(dt.UTC)):
                authority.issue(self._tls, each)

    def _choose_ports(self) -> None:
        members = [f"n{number}" for number in range(1, self.members + 1)]
        first, count = self.base_port, 1 + 2 * self.members
        ports = list(range(first, first + count) if first else free_ports(count))
        self.ports = dict(zip([NAME_SERVER, *members], ports, strict=False))
        self.link_ports = dict(zip(members, ports[1 + self.members :], strict=True))

    def _write(self, record: Path) -> None:
        """Note the ports. The file is whole or absent: the next start must find the same ones."""
        known = {
            "cluster": self.cluster,
            "group": self.group,
            "ports": self.ports,
            "link_ports": self.link_ports,
            "secure": self.secure,
        }
        beside = record.with_suffix(".new")
        beside.write_text(json.dumps(known, indent=1) + "\n")
        beside.replace(record)

    def _take_over(self, record: Path) -> None:
        """Become the cluster that an earlier start made."""
        try:
            known = json.loads(record.read_text())
            self.cluster, self.group = str(known["cluster"]), str(known["group"])
            self.ports = _ports_in(known["ports"])
            self.link_ports = _ports_in(known.get("link_ports", {}))
            self.secure = bool(known.get("secure", False))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise BadRecord(f"{record} is damaged: {what}") from error
        self.members = len(self.ports) - 1
        linked = set(self.link_ports or self.member_names)
        if NAME_SERVER not in self.ports or not self.members or linked != {*self.member_names}:
            raise BadRecord(f"{record} is damaged: ports of {', '.join(self.ports) or 'nobody'}")

    @property
    def member_names(self) -> list[str]:
        """Names of the members, in order."""
        return [name for name in self.ports if name != NAME_SERVER]

    @property
    def names(self) -> list[str]:
        """Names of all processes, the name server first."""
        return [NAME_SERVER, *self.member_names]

    def address(self, name: str) -> str:
        """Return "host:port" of a process."""
        return f"127.0.0.1:{self.ports[name]}"

    def link_address(self, name: str) -> str:
        """Return "host:port" where a member takes the links of the others."""
        return f"127.0.0.1:{self.link_ports[name]}"

    @property
    def name_server(self) -> str:
        """Address that clients are given."""
        return self.address(NAME_SERVER)

    def start(self, name: str) -> None:
        """Start a process that is not running; PortTaken when its port is not free."""
        assert not self.is_running(name), f"{name} is running"
        self.check_ports_free(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - a command of dledger
                self._command(name),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # Ctrl-C reaches the owner alone, which stops the cluster in order. Not a session:
                # Linux gives each session a share of a processor, and a session that mostly sleeps
                # gets its share late.
                process_group=0,
                # The files say everything; variables of the user's shell must not change it.
                env={key: value for key, value in os.environ.items() if key[:8] != "DLEDGER_"},
                pass_fds=(self.lock_fd,) if self.lock_fd >= 0 else (),
            )

    def check_ports_free(self, name: str) -> None:
        """Raise PortTaken, naming the process, when somebody else listens on its ports."""
        check_port_free(self.ports[name], name)
        if name in self.link_ports:
            check_port_free(self.link_ports[name], f"the links of {name}")

    def start_all(self) -> None:
        """Start every process that is not running."""
        for name in self.names:
            if not self.is_running(name):
                self.start(name)

    def is_running(self, name: str) -> bool:
        """Tell whether the process was started and has not ended."""
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def ended(self) -> Iterator[tuple[str, int]]:
        """Yield (name, exit code) of processes that were started and have ended."""
        for name, process in self.processes.items():
            code = process.poll()
            if code is not None:
                yield name, code

    def pid(self, name: str) -> int:
        """Return the process id of a started process."""
        return self.processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL and reap."""
        self.processes[name].kill()
        self.processes[name].wait()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        os.kill(self.pid(name), signal.SIGCONT)

    def stop(self, name: str) -> int:
        """SIGTERM; after STOP_SECONDS SIGKILL. Return the exit code."""
        process = self.processes[name]
        process.terminate()
        return _reap(process)

    def stop_all(self) -> None:
        """Stop the members together, then the name server."""
        running = [name for name in self.member_names if self.is_running(name)]
        for name in running:
            self.resume(name)
            self.processes[name].terminate()
        for name in running:
            _reap(self.processes[name])
        if self.is_running(NAME_SERVER):
            self.stop(NAME_SERVER)

    def log_text(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _command(self, name: str) -> list[str]:
        tie = ["dledger_broker.local.child", str(os.getpid())] if self.die_with_owner else []
        if name == NAME_SERVER:
            own = self.own_settings.get(name, {}).items()
            options = [word for key, value in own for word in (f"--{key}", str(value))]
            if self.secure:
                options += ["--tls-folder", str(self._tls / name)]
            command = ["dledger_namesrv", "--listen", self.address(name), *options]
        else:
            config = self.folder / name / "config.toml"
            command = ["dledger_broker.cli", "broker", "--config", str(config)]
        return [sys.executable, "-m", *tie, *command]

    def _settings(self, name: str) -> dict[str, Setting]:
        tls = {"tls.folder": str((self._tls / name).absolute())} if self.secure else {}
        return {**self.settings, **tls, **self.own_settings.get(name, {})}

    def _config(self, name: str) -> str:
        lines = [
            f"cluster = {json.dumps(self.cluster)}",
            f"group = {json.dumps(self.group)}",
            f"member = {json.dumps(name)}",
            f"listen = {json.dumps(self.address(name))}",
            f"link_listen = {json.dumps(self.link_address(name))}",
            f"folder = {json.dumps(str((self.folder / name / 'data').absolute()))}",
            f"name_servers = [{json.dumps(self.name_server)}]",
            *(f"{key} = {json.dumps(value)}" for key, value in self._settings(name).items()),
            "",
            "[members]",
            *(f"{peer} = {json.dumps(self.address(peer))}" for peer in self.member_names),
            "",
            "[links]",
            *(f"{peer} = {json.dumps(self.link_address(peer))}" for peer in self.member_names),
        ]
        return "\n".join(lines) + "\n"


def _ports_in(said: Mapping[str, int]) -> dict[str, int]:
    return {str(name): int(port) for name, port in said.items()}


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reap(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
