"""Which way of keeping the state crash-safe costs the loop least (D16).

Three were tried:

    transaction   one LMDB write transaction on the loop's thread, committed every INTERVAL with
                  MDB_NOMETASYNC; it serves the newest reads
    rows          an in-memory tail, saved every INTERVAL by a worker thread in one fully synced
                  transaction; one LMDB row for each row of a batch
    blocks        the same, with the rows of batches appended to blocks (what the product does)

    python -m bench.cluster.state_store [--folder F] [--seconds S]

For each way, on the same entries: CPU of the loop's thread per batch (apply, and commit if it is
there), how late the loop's millisecond tick comes (99th percentile and worst), how long one save
takes and how many rows it writes. `quiet`: the loop sleeps between ticks. `busy`: the loop computes
all the time, as a member does under full load, so that the worker has to fight for the interpreter.
Prints one JSON line for each run.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, cast

import lmdb

from dledger.state.commands.registry import encode
from dledger.state.machine import StateMachine
from dledger.state.producers.registration import RegisterProducer
from dledger.state.topics.commands import CreateTopic
from dledger.state.values import LayoutPart, TopicType
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import Row, StateStore
from dledger.types import Entry, EntryKind, EntryRef, LogIndex, Position, Term
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch

INTERVAL_SECONDS = 0.1
TICK_SECONDS = 0.001
QUEUES = 8
TOPIC = b"t" * 16
PRODUCER = b"p" * 16
MAP_SIZE = 8 << 30
LOADS = {
    # name: records per batch, batches per entry, entries per second
    "singles": (1, 64, 150),
    "batches of 64": (64, 8, 160),
}


class Saver(Protocol):
    """A store under test with its way of saving."""

    store: StateStore
    row_count: int
    save_seconds: list[float]

    def due(self, machine: StateMachine) -> None:
        """INTERVAL is over: begin or do a save."""

    def poll(self, machine: StateMachine) -> None:
        """Called each tick."""

    def close(self) -> None:
        """End."""


class _LongTransaction:
    """One open write transaction: every write and read goes to it."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder)
        self._environment = lmdb.open(folder, map_size=MAP_SIZE, metasync=False, readahead=False)
        self._transaction = self._environment.begin(write=True)
        self.store = cast("StateStore", self)
        self.unsaved_bytes = 0
        self.row_count = 0
        self.save_seconds: list[float] = []

    def get(self, key: bytes) -> bytes | None:
        return self._transaction.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.row_count += 1
        self._transaction.put(key, value)

    def append(self, key: bytes, suffix: bytes, *, is_new: bool = False) -> None:
        """A row of its own: rewriting a block for every row would be slower still."""
        del is_new
        self.row_count += 1
        self._transaction.put(key + self.row_count.to_bytes(8, "big"), suffix)

    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> list[Row]:
        cursor = self._transaction.cursor()
        rows: list[Row] = []
        if reverse:
            found = cursor.prev() if cursor.set_range(stop) else cursor.last()
        else:
            found = cursor.set_range(start)
        for row in (cursor.iterprev() if reverse else cursor.iternext()) if found else ():
            if not start <= row[0] < stop or len(rows) == limit:
                break
            rows.append(row)
        return rows

    def freeze(self) -> None:
        """Nothing to freeze: `due` commits."""

    def flush_finished(self, flush: object) -> None:
        """Nothing was frozen."""

    def due(self, machine: StateMachine) -> None:
        del machine
        start = time.perf_counter()
        self._transaction.commit()
        self._transaction = self._environment.begin(write=True)
        self.save_seconds.append(time.perf_counter() - start)

    def poll(self, machine: StateMachine) -> None:
        """Nothing goes on beside the loop."""
        del machine

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()


class _Tail:
    """The product's store, saved by a worker thread."""

    def __init__(self, folder: str, *, row_per_batch: bool) -> None:
        self.store: StateStore = (_RowPerBatchStore if row_per_batch else LmdbStore)(
            folder, MAP_SIZE
        )
        self._pool = ThreadPoolExecutor(1)
        self._saving: Future[float] | None = None
        self._finish: Callable[[], None] = lambda: None
        self.row_count = 0
        self.save_seconds: list[float] = []

    def due(self, machine: StateMachine) -> None:
        if self._saving is not None:
            return
        flush = machine.freeze()
        if flush is None:
            return
        self.row_count += len(flush.flush.overlay.values)

        def job() -> float:
            start = time.perf_counter()
            flush.execute()
            return time.perf_counter() - start

        self._saving = self._pool.submit(job)
        self._finish = lambda: machine.flush_finished(flush)

    def poll(self, machine: StateMachine) -> None:
        del machine
        if self._saving is not None and self._saving.done():
            self.save_seconds.append(self._saving.result())
            self._saving = None
            self._finish()

    def close(self) -> None:
        if self._saving is not None:
            self.save_seconds.append(self._saving.result())
        self._pool.shutdown()
        self.store.close()


class _RowPerBatchStore(LmdbStore):
    """Every appended row under a key of its own."""

    _count = 0

    def append(self, key: bytes, suffix: bytes, *, is_new: bool = False) -> None:
        del is_new
        self._count += 1
        self.put(key + self._count.to_bytes(8, "big"), suffix)


class Load:
    """Entries of idempotent batches over QUEUES queues, made before the clock starts."""

    def __init__(self, records: int, batches: int, count: int) -> None:
        self._position = 0
        self._index = 0
        topic = CreateTopic(TOPIC, "bench", TopicType.NORMAL, (LayoutPart("g", QUEUES),), QUEUES, 6)
        first = [encode(topic), encode(RegisterProducer(PRODUCER, PRODUCER))]
        self.first = self._entry(EntryKind.COMMANDS, first)
        body = [Record(b"x" * 64)] * records
        made = [
            encode_batch(
                body, topic_id=TOPIC, queue=at % QUEUES, base_number=at * records, base_time_ms=1,
                stamp=ProducerStamp(PRODUCER, 1, at // QUEUES * records),
            )
            for at in range(batches * count)
        ]  # fmt: skip
        self.entries = [
            self._entry(EntryKind.BATCHES, made[at : at + batches])
            for at in range(0, len(made), batches)
        ]

    def _entry(self, kind: EntryKind, payloads: Sequence[bytes]) -> Entry:
        self._index += 1
        start = self._position
        starts: list[Position] = []
        for payload in payloads:
            starts.append(Position(self._position))
            self._position += len(payload)
        ref = EntryRef(LogIndex(self._index), Term(1), Position(start), self._position - start, 0)
        return Entry(
            ref, kind, 1_000 + self._index, [memoryview(each) for each in payloads], starts
        )


def compute(until: float) -> None:
    """Hold the interpreter as a busy loop does: Python in between short system calls."""
    with open(os.devnull, "wb", buffering=0) as sink:
        while time.perf_counter() < until:
            for _ in range(2_000):
                pass
            sink.write(b"x")


def run(saver: Saver, load: Load, rate: float, *, busy: bool) -> dict[str, float]:
    """Apply the entries at their rate and return the figures."""
    machine = StateMachine(saver.store, "g")
    machine.apply(load.first)
    late: list[float] = []
    loop_seconds = 0.0
    start = tick = save_at = time.perf_counter()
    cpu = time.process_time()
    done = 0
    while done < len(load.entries):
        tick += TICK_SECONDS
        if busy:
            compute(tick)
        else:
            time.sleep(max(tick - time.perf_counter(), 0))
        now = time.perf_counter()
        late.append(now - tick)
        tick = max(tick, now - TICK_SECONDS)
        used = time.thread_time()
        while done < len(load.entries) and start + done / rate <= now and not machine.is_backlogged:
            machine.apply(load.entries[done])
            done += 1
        saver.poll(machine)
        if now >= save_at + INTERVAL_SECONDS:
            save_at = now
            saver.due(machine)
        loop_seconds += time.thread_time() - used
    elapsed = time.perf_counter() - start
    cpu = time.process_time() - cpu
    saver.close()
    late.sort()
    batches = len(load.entries) * len(load.entries[0].payloads)
    saves = sorted(saver.save_seconds) or [0.0]
    return {
        "batches_per_s": round(batches / elapsed),
        "loop_us_per_batch": round(loop_seconds / batches * 1e6, 1),
        "process_cpu_share": round(cpu / elapsed, 3),
        "late_p99_ms": round(late[int(len(late) * 0.99)] * 1e3, 2),
        "late_max_ms": round(late[-1] * 1e3, 1),
        "save_median_ms": round(saves[len(saves) // 2] * 1e3, 1),
        "save_max_ms": round(saves[-1] * 1e3, 1),
        "rows_per_batch": round(saver.row_count / batches, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    ways: dict[str, Callable[[str], Saver]] = {
        "transaction": _LongTransaction,
        "rows": lambda folder: _Tail(folder, row_per_batch=True),
        "blocks": lambda folder: _Tail(folder, row_per_batch=False),
    }
    for name, (records, batches, rate) in LOADS.items():
        load = Load(records, batches, int(rate * arguments.seconds))
        for busy in (False, True):
            for way, make in ways.items():
                folder = tempfile.mkdtemp(prefix="state-store-", dir=arguments.folder)
                try:
                    figures = run(make(os.path.join(folder, "state")), load, rate, busy=busy)
                finally:
                    shutil.rmtree(folder)
                loop = "busy" if busy else "quiet"
                print(json.dumps({"load": name, "loop": loop, "way": way, **figures}), flush=True)


if __name__ == "__main__":
    main()
