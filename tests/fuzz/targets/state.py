"""Targets: replicated commands, rows of the state, LMDB's pages."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from dledger.files import OsFileSystem
from dledger.state.commands.registry import COMMANDS, UnknownCommand, decode, describe, encode
from dledger.state.tables import Table
from dledger.state.timers.schedules import SetSchedule
from dledger.store.lmdb_mark import MARK_FILE, read_mark, write_mark
from dledger.store.lmdb_rows import DATA_FILE
from dledger.store.lmdb_store import LmdbStore
from dledger.store.sealed import (
    FORMAT_KEY,
    TOTALS_KEY,
    Totals,
    check_format,
    format_row,
    parse_totals,
    seal,
)
from dledger.store.store import DamagedStore, NewerStore
from dledger_offline.state import describe_row, open_state
from tests.contract.store_suite import save
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal
from tests.unit.broker.test_story import CONCURRENT, claim, commit, fail
from tests.unit.state.groups_kit import with_group
from tests.unit.state.kit import Driven, batch, delayed
from tests.unit.state.test_command_codec import GOLDEN

TABLES: Final = tuple(Table)
_MAP_SIZE: Final = 1 << 24


def _command(data: bytes) -> None:
    command = decode(data)
    assert type(command) in COMMANDS, type(command)
    assert decode(encode(command)) == command
    describe(command)


@cache
def driven() -> Driven:
    """Return a state with rows in most tables."""
    found = with_group(CONCURRENT)
    found.register()
    for sequence in range(0, 6, 2):
        found.append(
            batch(2, sequence=sequence, number=sequence, keys=("k", "l")), time_ms=2_000 + sequence
        )
    found.append(delayed(9_000, 3, keys=("k",), number=50), delayed(9_500, number=60))
    for command in (claim(), commit(1), commit(1, 5, "a", (3, 4)), fail(2), fail(2)):
        found.one(command)
    found.one(claim(6, "b"))
    found.one(SetSchedule("nightly", "0 3 * * *", "Europe/Berlin", batch(1)))
    return found


def row_input(key: bytes, value: bytes) -> bytes:
    """Return the input of a row: number of its table, size of its key, key, value."""
    return bytes((TABLES.index(Table(key[0])), len(key))) + key + value


def _rows() -> Sequence[bytes]:
    found = [row_input(key, value) for key, value in driven().rows().items() if len(key) < 256]
    return found + [bytes((place, 33)) + bytes(100) for place in range(len(TABLES))]


def _row(data: bytes) -> None:
    """Whatever a row holds, it is shown."""
    if len(data) < 2:
        return
    table = TABLES[data[0] % len(TABLES)]
    key = bytes((table,)) + data[3 : 2 + max(data[1], 1)]
    describe_row(table, key, data[2 + max(data[1], 1) :])


@cache
def _store() -> bytes:
    """Return LMDB's file of a small state."""
    random = Random(5)
    with tempfile.TemporaryDirectory() as folder:
        store = LmdbStore(folder, _MAP_SIZE)
        for _ in range(3):
            for key, value in driven().rows().items():
                store.put(key, value)
            store.put(b"\x61" + random.randbytes(8), random.randbytes(random.choice((40, 5_000))))
            save(store)
        store.close()
        return Path(folder, DATA_FILE).read_bytes()


_SCRATCH: Final = tempfile.TemporaryDirectory(prefix="dledger-fuzz-")


def scratch(name: str, data: bytes) -> Path:
    """Write a file for a reader that takes real ones only; return its path."""
    path = Path(_SCRATCH.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _pages(data: bytes) -> None:
    folder = scratch(f"state/{DATA_FILE}", data).parent
    for row in open_state(folder, None, 10_000):
        assert row.table


def _mark(data: bytes) -> None:
    read_mark(str(scratch(f"mark/{MARK_FILE}", data).parent))


def _mark_seeds() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_mark(OsFileSystem(), folder, Totals(5, 6, 7))
        return [Path(folder, MARK_FILE).read_bytes()]


def _totals(data: bytes) -> None:
    totals = parse_totals("here", data)
    assert parse_totals("here", totals.encode()) == totals


TARGETS: Final = (
    Target(
        "command", _command, (UnknownCommand,),
        lambda: [bytes.fromhex(golden) for _, golden, _ in GOLDEN],
        ("dledger.state.commands.registry:decode",), tries=2_500, multiple=64,
    ),
    Target(
        "state-row", _row, (), _rows,
        (
            "dledger_offline.state:describe_row",
            "dledger.state.consumers.usage:decode_use",
            "dledger.state.lookup.runs:decode_directory",
            "dledger.state.progress.row:decode_progress",
            "dledger.state.progress.wave:decode_window",
            "dledger.state.queues.references:decode_origin",
            "dledger.state.timers.schedule_table:decode_schedule",
            "dledger.state.timers.table:decode_timer",
            "dledger.state.topics.table:decode_topic",
        ),
        tries=2_500, multiple=64,
    ),
    Target(
        "state-pages", _pages, (DamagedStore, NewerStore), lambda: [_store()],
        ("dledger.store.lmdb_rows:Walk", "dledger.store.lmdb_rows:PageFile"),
        tries=300, multiple=64, allowance=4 << 20,
    ),
    Target(
        "state-mark", _mark, (DamagedStore, NewerStore), _mark_seeds,
        ("dledger.store.lmdb_mark:read_mark",), reseal.last_crc, tries=300,
    ),
    Target(
        "state-totals", _totals, (DamagedStore,), lambda: [Totals(5, 6, 7).encode()],
        ("dledger.store.sealed:parse_totals",), reseal.sealed(TOTALS_KEY), tries=300,
    ),
    Target(
        "state-format", lambda data: check_format("here", data), (DamagedStore, NewerStore),
        lambda: [seal(FORMAT_KEY, format_row())], ("dledger.store.sealed:check_format",),
        reseal.sealed(FORMAT_KEY), tries=300,
    ),
)  # fmt: skip
