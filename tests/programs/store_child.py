"""A process that writes a state store and dies by SIGKILL at a given step.

    python -m tests.programs.store_child FOLDER ROUND STEP

Round n sets row "round" to n, row "new-n", and extends row "sum"; rounds before ROUND are saved. In
ROUND it dies: at "put" with rows in memory, "frozen" before the save, "inside" in the transaction
with half of the rows written, "committed" when the save returned, "finished" after that was told.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator

from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import Base, Value

STEPS = ("put", "frozen", "inside", "committed", "finished")


class DyingBase:
    """Passes everything on; in a save it dies after two rows."""

    def __init__(self, base: Base) -> None:
        self._base = base

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        def some() -> Iterator[tuple[bytes, Value | None]]:
            for at, row in enumerate(rows):
                if at == 2:
                    die()
                yield row

        self._base.save(some(), size_bytes)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, last: int, step: str) -> None:
    store = LmdbStore(folder, 1 << 26)
    for number in range(1, last + 1):
        store.put(b"round", b"%d" % number)
        store.put(b"new-%d" % number, b"x" * 5000)
        store.append(b"sum", b"%d," % number)
        is_last = number == last
        if is_last and step == "put":
            die()
        flush = store.freeze()
        assert flush is not None
        if is_last and step == "frozen":
            die()
        if is_last and step == "inside":
            DyingBase(store._base).save(
                [(key, flush.overlay.values[key]) for key in flush.overlay.sort()], 0
            )
        flush.execute()
        if is_last and step == "committed":
            die()
        store.flush_finished(flush)
    die()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
