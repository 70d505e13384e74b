"""Power cuts of a real ext4 file system (a loop device that is shut down under the writer).

Flag 2 loses everything unsynced, flag 1 keeps metadata and loses data: a file with its new length
full of zeros, a renamed file empty. A child process writes, cuts and rolls, and says after each
round what is durable; that must be there afterwards.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from dledger.files import OsFileSystem
from dledger.types import LogIndex
from jepsen_tests.backends.troubles.loop_disk import DROP_JOURNAL, FLUSH_JOURNAL, LoopDisk, why_not
from tests.unit.log.support import SMALL, Member

ROUNDS_BEFORE_CUT = 60

WRITER = """
import sys
import time
from random import Random
from dledger.files import OsFileSystem
from dledger.log.hard_state import HardState
from dledger.types import LogIndex, Term
from tests.unit.log.support import SMALL, Member

random = Random(int(sys.argv[2]))
member = Member(OsFileSystem(), sys.argv[1], SMALL)
log = member.log
if log.is_empty:
    member.genesis()
term = log.last_term + 1
kept = log.last_index
while True:
    for _ in range(random.randrange(1, 5)):
        member.append(random.randbytes(random.randrange(3000)), term=term)
    if random.random() < 0.2 and log.last_index > kept + 1:
        log.truncate_from(LogIndex(random.randrange(kept + 1, log.last_index + 1)))
        term += 1
    member.sync(HardState(Term(term), "m1"))
    kept = random.randrange(kept, log.durable_index + 1)
    ref = log.ref(LogIndex(kept)) if kept else None
    print(time.monotonic(), kept, ref.crc if ref else 0, term, flush=True)
"""

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def write_until_cut(disk: LoopDisk, path: str, flag: int, seed: int) -> tuple[int, int, int]:
    """Return the last promise of a writer under whom the power was cut: index, crc, term."""
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'proto'}"},
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(ROUNDS_BEFORE_CUT + seed % 7)]
        cut_at = time.monotonic()  # what is promised later proves nothing: see `cut_power`
        disk.cut_power(flag)
        rest, errors = writer.communicate()
    said += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    assert all(said), errors
    assert "OSError" in errors
    promises = [line.split() for line in said]
    index, crc, term = [map(int, said) for at, *said in promises if float(at) < cut_at][-1]
    return index, crc, term


@pytest.mark.parametrize("flag", [FLUSH_JOURNAL, DROP_JOURNAL])
def test_what_a_finished_round_promised_survives(tmp_path: Path, flag: int) -> None:
    with LoopDisk(tmp_path / "image", tmp_path / "mounted", 64 << 20) as disk:
        path = f"{disk.mount}/data"
        for seed in range(4):
            index, crc, term = write_until_cut(disk, path, flag, seed)
            disk.power_on()
            member = Member(OsFileSystem(), path, SMALL, seed=Random(seed).randrange(100))
            assert member.log.last_index >= index
            if index:
                assert member.log.ref(LogIndex(index)).crc == crc
            assert member.folder.load_hard_state().term >= term
            last = member.log.last_index
            assert member.log.entries(LogIndex(last), last, 1)
            member.close()
