"""A Spark cluster of its own: one master, two workers, each a process, on loopback."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
PACKAGED: Final = ("broker", "client", "dledger", "proto", "pyproject.toml", "README.md")
SPARK: Final = Path(pyspark.__file__).parent
WORKERS: Final = 2
START_SECONDS: Final = 60.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")


def environment(python: Path) -> dict[str, str]:
    """Return what a process of Spark is started with; `python` runs drivers and tasks."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return kept | {
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def standalone(folder: Path) -> Generator[str]:
    """Run the cluster for the length of a block; yield the master's URL."""
    with ExitStack() as stack:
        port = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = stack.enter_context(_running("master.Master", port, folder / "master.log"))
        wait_until(
            lambda: _MASTER.search(log.read_text()) is not None, "the master is up", START_SECONDS
        )
        found = _MASTER.search(log.read_text())
        assert found is not None
        for number in range(WORKERS):
            work = ["--work-dir", str(folder / f"work{number}"), "--cores", "1", "--memory", "1g"]
            stack.enter_context(
                _running("worker.Worker", [*port, *work, found[1]], folder / f"worker{number}.log")
            )
        wait_until(
            lambda: log.read_text().count("Registering worker") == WORKERS,
            "all workers are there", START_SECONDS,
        )  # fmt: skip
        yield found[1]


@contextmanager
def _running(role: str, arguments: Sequence[str], log: Path) -> Generator[Path]:
    """Run one process of the cluster; yield its log. Ends it with whatever it started."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *arguments],
            env=environment(Path(sys.executable)), stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def bare_python(folder: Path) -> Path:
    """Return an interpreter that has all that we need, and not us."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # A folder named by a file is searched; the files in it that would name us are not read.
    (packages / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def shipped(folder: Path) -> Path:
    """Return our wheel, made of the sources as they are; Spark takes it only if it is a .zip."""
    sources = folder / "sources"
    sources.mkdir()
    for name in PACKAGED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", folder, sources],
        check=True,
    )  # fmt: skip
    (made,) = folder.glob("dledger-*.whl")
    return made.rename(folder / "dledger.zip")
