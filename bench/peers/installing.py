"""Gets what peers consist of into a folder outside the repository.

Owns which versions are used, and their checksums. Go, Maven, pip and the Debian tools fetch, each
from where its own configuration says, and each checks what it gets: Go by its checksum database,
Maven by the checksums beside the files (`-C`), pip by `requirements.lock` of this folder, Debian by
its signatures. Not: running anything of it.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.setup.cluster import NotReady

DEFAULT_HOME = Path("~/.cache/dledger-peers")
INSTALL_SECONDS_MAX = 1800.0
TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program that Go builds."""

    name: str
    module: str
    version: str
    checksum: str
    """Of the module's files, as in `go.sum`."""

    def place(self, home: Path) -> Path:
        """Return where the program is, once it is built."""
        return home / "bin" / f"{self.name}-{self.version}"


ETCD = GoProgram(
    "etcd", "go.etcd.io/etcd/server/v3", "v3.6.8", "h1:U2strdSEy1U8qcSzRIdkYpvOPtBy/9i/IfaaCI9flZ4="
)
NATS = GoProgram(
    "nats-server",
    "github.com/nats-io/nats-server/v2",
    "v2.15.2",
    "h1:yLsgt2kslgymvxvjFq1WGWck5hkat2YYfbXvQ145tzU=",
)


KAFKA_VERSION = "4.3.1"
KAFKA_JARS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
DEBIAN_RELEASE = "trixie"
"""Its packages are those of one release; the page tells which version came."""
MAVEN_PLUGIN_VERSION = "2.8"


def lacking(*tools: str) -> str:
    """Name the tools that are not on the PATH, for `Peer.missing`; empty: all are there."""
    lost = [tool for tool in tools if shutil.which(tool) is None]
    return f"not on the PATH: {', '.join(lost)}" if lost else ""


def run(command: Sequence[str], folder: Path, **variables: str) -> str:
    """Run a tool to its end, at low priority; return what it printed. NotReady when it fails."""
    try:
        done = subprocess.run(
            ["nice", *command], cwd=folder, env={**os.environ, **variables}, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=INSTALL_SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        what = f"{command[0]} took longer than {INSTALL_SECONDS_MAX:g} s"
        raise NotReady(f"{what}: {' '.join(command)}") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-TAIL_LINES:]
        raise NotReady(f"{' '.join(command)}: exit code {done.returncode}: {' / '.join(lines)}")
    return done.stdout


def go_program(home: Path, program: GoProgram) -> None:
    """Build a program, unless it is there. NotReady when its files are not those that we know."""
    place = program.place(home)
    if place.exists():
        return
    folder = home / "build" / place.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place.parent.mkdir(exist_ok=True)
    which = f"{program.module}@{program.version}"
    run(["go", "mod", "init", "peer"], folder)
    run(["go", "get", which], folder)
    known = json.loads(run(["go", "mod", "download", "-json", which], folder))
    if known["Sum"] != program.checksum:
        raise NotReady(f"{which} has the checksum {known['Sum']}, not {program.checksum}")
    run(["go", "build", "-o", f"{place}.new", program.module], folder)
    Path(f"{place}.new").rename(place)


def python_folder(home: Path) -> Path:
    """Return where the Python clients of peers are: a folder for each version of Python."""
    return home / f"python-{sys.version_info.major}.{sys.version_info.minor}"


def python_clients(home: Path) -> None:
    """Install the Python clients of peers beside each other, unless the same are there."""
    wanted = Path(__file__).with_name("requirements.lock")
    folder = python_folder(home)
    record = folder / wanted.name
    if not record.exists() or record.read_bytes() != wanted.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
             "--target", str(folder), "--requirement", str(wanted)],
            home,
        )  # fmt: skip
        shutil.copy(wanted, record)
    use_python_clients(home)


def jars(home: Path) -> Path:
    """Return where Kafka's programs and all that they need are, once they are there."""
    return home / f"kafka-{KAFKA_VERSION}"


def kafka_jars(home: Path) -> None:
    """Let Maven fetch Kafka, unless it is there."""
    place = jars(home)
    if place.exists():
        return
    folder = home / "build" / place.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in KAFKA_JARS
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>"
        "<artifactId>kafka</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )
    run(
        ["mvn", "--quiet", "--batch-mode", "--strict-checksums",
         f"org.apache.maven.plugins:maven-dependency-plugin:{MAVEN_PLUGIN_VERSION}:copy-dependencies",
         "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}"],
        folder,
    )  # fmt: skip
    (folder / "jars").rename(place)


def debian_root(home: Path) -> Path:
    """Return the folder that is the root of Debian packages, once they are there."""
    return home / f"debian-{DEBIAN_RELEASE}"


def debian(home: Path, package: str) -> None:
    """Install a Debian package in a root of its own, unless it is there. Needs root."""
    place = debian_root(home)
    if place.exists():
        return
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    included = f"--include={package}"
    run(["mmdebstrap", "--variant=apt", included, DEBIAN_RELEASE, str(fresh)], home)
    (fresh / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    fresh.rename(place)


def client_version(package: str) -> str:
    """Return the name of a Python client and its version, once clients are in use."""
    return f"{package} {importlib.metadata.version(package)}"


def use_python_clients(home: Path) -> None:
    """Let imports find the Python clients of peers, behind all that is installed here."""
    folder = str(python_folder(home))
    if folder not in sys.path:
        sys.path.append(folder)
