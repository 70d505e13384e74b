"""A docker engine to work with: the one that answers, or an engine of our own for the run.

Our own engine keeps everything below a temporary folder (data, sockets, configuration), makes its
mounts in a mount namespace of its own, and is ended by its process id. `traces` removes the rest.
The harness installs Debian packages that are missing, and says so. They stay.

The base image is the one that the Dockerfile names, if an image registry answers. If not, the
harness makes it from the Debian packages of this machine's release.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from jepsen_tests.docker.traces import Traces, take_away
from jepsen_tests.processes.child import leashed

ROOT = Path(__file__).parents[2]
REGISTRY_BASE = "python:3.11.14-slim-bookworm"
START_SECONDS = 60
STOP_SECONDS = 30
PULL_SECONDS = 300
CGROUP_PARENT = f"dledger-engine-{os.getpid()}"
PACKAGES = {"docker": "docker.io", "dockerd": "docker.io", "iptables": "iptables"}
DEBIAN_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
AUTHORITIES = Path("/usr/local/share/ca-certificates")

Note = Callable[[str], None]


class NoEngine(Exception):
    """No engine answers, and none can be started here; the message says why."""


class LeftBehind(Exception):
    """Something of our engine is still there."""


@dataclass
class DockerEngine:
    """A running engine, and how to talk to it."""

    environment: dict[str, str]
    is_ours: bool
    note: Note
    images: list[str] = field(default_factory=list)
    """Images that we made. The end removes them."""

    def docker(self, *arguments: str, seconds: float = 120) -> str:
        """Run a docker command; return its standard output."""
        done = subprocess.run(
            ["docker", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
        if done.returncode:
            raise subprocess.SubprocessError(f"docker {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def has(self, image: str) -> bool:
        """Tell whether the engine has an image."""
        return bool(self.docker("images", "--quiet", image).strip())


@contextmanager
def engine(note: Note) -> Generator[DockerEngine]:
    """Yield an engine for the length of the block; NoEngine where there can be none."""
    with tempfile.TemporaryDirectory(prefix="dledger-engine-") as name:
        folder = Path(name)
        (folder / "config").mkdir()
        if _answers(os.environ):
            used = DockerEngine(dict(os.environ), is_ours=False, note=note)
            try:
                yield used
            finally:
                for image in used.images:
                    used.docker("image", "rm", image)
            return
        with _own(folder, note) as used:
            yield used


def _answers(environment: Mapping[str, str]) -> bool:
    if not shutil.which("docker"):
        return False
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        env=environment, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    return asked.returncode == 0


# An engine of our own


@contextmanager
def _own(folder: Path, note: Note) -> Generator[DockerEngine]:
    _check_may_start()
    install([package for name, package in PACKAGES.items() if not shutil.which(name)], note)
    before = Traces.look(CGROUP_PARENT)
    socket = f"unix://{folder}/docker.sock"
    # The user's own configuration may name another engine and credentials: neither is for us.
    environment = {key: value for key, value in os.environ.items() if key[:7] != "DOCKER_"}
    environment |= {"DOCKER_HOST": socket, "DOCKER_CONFIG": str(folder / "config")}
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            # An engine that outlived a killed harness would keep its bridge from the next one.
            leashed(
                "unshare", "--mount", "--propagation", "private",
                "dockerd", "--host", socket, "--data-root", str(folder / "data"),
                "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "dockerd.pid"),
                "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", CGROUP_PARENT,
                "--log-level", "warn",
            ),
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_up(process, environment, folder / "dockerd.log")
        note("started an engine of our own")
        yield DockerEngine(environment, is_ours=True, note=note)
    finally:
        _stop(process, folder)
        left = take_away(before, CGROUP_PARENT)
        left += [f"process {pid}: {line}" for pid, line in _processes_of(folder)]
    if left:
        raise LeftBehind("; ".join(left))


def _check_may_start() -> None:
    if sys.platform != "linux":
        raise NoEngine(f"no engine answers, and on {sys.platform} none can be started")
    if os.geteuid() != 0:
        raise NoEngine("no engine answers, and only root can start one")


def install(packages: Sequence[str], note: Note) -> None:
    """Install Debian packages; NoEngine when that cannot be done."""
    missing = sorted(set(packages))
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise NoEngine(f"missing: {', '.join(missing)}, and there is no apt-get to install them")
    note(f"installing Debian packages: {' '.join(missing)}")
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for before in ([], ["apt-get", "update", "-qq"]):
        if before:
            subprocess.run(before, env=environment, capture_output=True, check=False)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    raise NoEngine(f"apt-get cannot install {' '.join(missing)}: {_last_line(done.stderr)}")


def _wait_up(process: "subprocess.Popen[bytes]", environment: dict[str, str], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not _answers(environment):
        if process.poll() is not None:
            raise NoEngine(f"dockerd ends at once: {_last_line(log.read_text(errors='replace'))}")
        if time.monotonic() > end:
            raise NoEngine(f"dockerd does not answer within {START_SECONDS} s")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")


def _stop(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End the engine, and then what it started and did not end, by process id."""
    assert process.stdin is not None, "it is a pipe"
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for signal_number in (15, 9):
        end = time.monotonic() + STOP_SECONDS / 2
        for pid, _ in _processes_of(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        while any(_processes_of(folder)) and time.monotonic() < end:
            Event().wait(0.05)


def _processes_of(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes that an engine in the folder started: they name it in their arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(path.parent.name) != os.getpid():
            yield int(path.parent.name), line.strip()


# The base image


def base_image(used: DockerEngine) -> str:
    """Return the name of an image with Python to build on; NoEngine when there can be none."""
    if used.has(REGISTRY_BASE):
        return REGISTRY_BASE
    try:
        used.docker("pull", "--quiet", REGISTRY_BASE, seconds=PULL_SECONDS)
    except subprocess.SubprocessError as error:
        used.note(f"no image registry ({error}): making the base image from Debian packages")
    else:
        used.images.append(REGISTRY_BASE)
        return REGISTRY_BASE
    name = f"dledger-made-base:{os.getpid()}"
    _from_packages(used, name)
    used.images.append(name)
    return name


def _from_packages(used: DockerEngine, name: str) -> None:
    """Make a minimal Debian with Python that trusts the authorities that this machine trusts."""
    _check_may_start()
    install([] if shutil.which("mmdebstrap") else ["mmdebstrap"], used.note)
    sources = next((path for path in DEBIAN_SOURCES if path.exists()), None)
    if sources is None:
        raise NoEngine("no base image: this machine has no list of Debian packages")
    with tempfile.TemporaryFile() as errors:
        made = subprocess.Popen(
            _bootstrap(sources),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # it signals its whole process group when it is ended
        )
        try:
            taken = _import(used, made, name)
        except BaseException:
            made.terminate()  # it takes its own files away
            made.wait()
            raise
        if made.wait() or taken.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace") or taken.stderr
            raise NoEngine(f"no base image: mmdebstrap: {_last_line(said)}")


def _bootstrap(sources: Path) -> list[str]:
    trusted = f'mkdir -p "$1{AUTHORITIES}"; cp {AUTHORITIES}/*.crt "$1{AUTHORITIES}" 2>&- || true'
    return [
        "mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io",
        "--include=python3,python3-venv,ca-certificates",
        '--customize-hook=ln -s python3 "$1/usr/bin/python"',
        f"--customize-hook={trusted}",
        '--customize-hook=chroot "$1" update-ca-certificates',
        _release(), "-", str(sources),
    ]  # fmt: skip


def _import(
    used: DockerEngine, made: "subprocess.Popen[bytes]", name: str
) -> "subprocess.CompletedProcess[str]":
    assert made.stdout is not None
    trust = "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt"
    with made.stdout as tree:
        return subprocess.run(
            ["docker", "import", "--change", trust, "-", name],
            env=used.environment, stdin=tree, capture_output=True, text=True, check=False,
        )  # fmt: skip


def _release() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "VERSION_CODENAME":
            return value.strip('"')
    raise NoEngine("no base image: /etc/os-release names no release")
