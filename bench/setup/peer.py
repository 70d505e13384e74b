"""The speed prototype, run as it was measured: three members and its producer.

Owns: generating its stubs, starting and ending its processes, reading its producer's lines. The
prototype keeps its log in memory, so that every run gets new members.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dledger_proto.network.ports import free_ports

SOURCE = Path(__file__).parents[1] / "prototype"
READY_SECONDS = 20.0
LINE = re.compile(r"per=(\d+) win=\d+: (\d+) msg/s")


def _generate(folder: Path) -> None:
    for name in ("member.py", "producer.py", "r.proto"):
        shutil.copy(SOURCE / name, folder)
    (folder / "data").mkdir()
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.",
               "--grpc_python_out=.", "r.proto"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)


def prototype_rates(parent: Path, seconds: float, warm: float) -> dict[int, float]:
    """Return records per second by records in a batch (64, 1000), for about so many seconds each.

    Before that it is warmed up for about `warm` seconds, which do not count.

    Windows as it was measured: 64 batches of 64, 8 of 1000.
    """
    folder = Path(tempfile.mkdtemp(prefix="prototype-", dir=parent))
    members: list[subprocess.Popen[bytes]] = []
    try:
        _generate(folder)
        ports = [str(port) for port in free_ports(3)]
        for port in ports:
            with (folder / f"{port}.log").open("wb") as log:
                members.append(
                    subprocess.Popen(
                        [sys.executable, "member.py", port, ",".join(ports)],
                        cwd=folder, stdout=log, stderr=log, process_group=0,
                    )
                )  # fmt: skip
        time.sleep(1.0)
        # As many batches as take about that long on a machine of two cores.
        cases = [f"64:{int(some * 1200)}:64" for some in (warm, seconds)]
        cases.append(f"1000:{int(seconds * 80)}:8")
        done = subprocess.run(
            [sys.executable, "producer.py", ",".join(ports), *cases],
            cwd=folder, check=True, capture_output=True, text=True,
            timeout=READY_SECONDS + 20 * seconds,
        )  # fmt: skip
        # The later line of 64 counts.
        rates = {int(per): float(rate) for per, rate in LINE.findall(done.stdout)}
        assert set(rates) == {64, 1000}, done.stdout + done.stderr
        return rates
    finally:
        for member in members:
            os.kill(member.pid, signal.SIGKILL)
            member.wait()
        shutil.rmtree(folder, ignore_errors=True)
