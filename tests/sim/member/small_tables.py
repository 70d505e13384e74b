"""Small blocks of the state's tables, and short waits, for one run of a minute.

Also passes that carry old records forward, and that compact, as often as a log allows.

Owns: which bounds are made small, and putting them back. They are plain constants of the product;
nothing else of it changes. Everything in one process sees them, so a world has them only while it
runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from dledger.raft.leadership import clocks, transfer
from dledger.state import counted_time
from dledger.state.consumers import usage
from dledger.state.lookup import key_index, message_ids
from dledger.state.producers import expiry
from dledger.state.producers import table as producers
from dledger.state.queues import garbage
from dledger.state.queues import table as queues
from dledger.state.topics import sweep as topic_sweep
from dledger_broker.carrying import carrying, worth
from dledger_broker.cluster import group_expiry
from dledger_broker.compacting import compacting, superseded
from dledger_broker.group import expiry as expiry_duty
from dledger_broker.group import forgetting
from dledger_broker.process import upkeep

SMALL: Final[Mapping[Any, Mapping[str, float]]] = {
    key_index: {
        "LEVEL_0_ENTRIES": 32,
        "MERGE_PACE": 16,
        "MERGE_STEP": 20,
        "RUNS_PER_MERGE": 3,
        "ENTRIES_PER_BLOCK": 8,
        "LEVEL_0_BLOCK_SIZE": 256,
    },
    queues: {"ROWS_PER_BLOCK": 7, "CACHED_QUEUES_MAX": 1},
    message_ids: {
        "BUCKET_NUMBERS": 16,
        "ROWS_PER_BUCKET_MAX": 32,
        "SWEEP_ROWS": 2,
        "CACHED_PRODUCERS_MAX": 1,
    },
    producers: {
        "WINDOW_BATCHES": 8,
        "WINDOW_ROWS_PER_BLOCK": 4,
        "CACHED_PRODUCERS_MAX": 1,
        "CACHED_QUEUES_MAX": 2,
    },
    expiry: {"EXPIRED_ROWS_MAX": 8},
    topic_sweep: {"SWEEP_ROWS_PER_ENTRY": 2},
    garbage: {"GARBAGE_ROWS_PER_ENTRY": 2},
    clocks: {"JUMP_REST_SECONDS": 8.0, "ODD_SECONDS": 1.0},
    transfer: {"CLOCK_RETRY_SECONDS": 5.0},
}
"""By module: its bounds. The ratios between those of one module are the product's."""
OFTEN: Final[Mapping[Any, Mapping[str, float]]] = {
    expiry_duty: {"CHECKS_PER_EXPIRY": 60},
    forgetting: {"LOOK_SECONDS": 3.0},
    upkeep: {"UPKEEP_SECONDS": 1.0},
}
"""By module: what lets leaders do their duties within a minute."""
CARRIED: Final[Mapping[Any, Mapping[str, float]]] = {
    carrying: {
        "LOOK_SECONDS": 1.0,
        "AGAIN_SECONDS": 2.0,
        "CHUNK": 5,
        "ROOTS_PER_COMMAND": 5,
        "COPIES_SIZE_TARGET": 2_000,
    },
    worth: {"BYTES_FREED_PER_COPIED": 2},
}
"""By module: what lets a leader begin a pass every few seconds, of many commands."""
COMPACTED: Final[Mapping[Any, Mapping[str, float]]] = {
    compacting: {
        "LOOK_SECONDS": 1.0,
        "AGAIN_SECONDS": 1.0,
        "NEW_BYTES_MIN": 1_000,
        "ROWS_PER_STRETCH": 5,
        "READ_SIZE_MAX": 4_000,
        "COPIES_SIZE_TARGET": 1_500,
    },
    superseded: {"KEYS_MAX": 12},
    queues: {"ROWS_PER_BLOCK": 7},
}
"""By module: what lets a leader begin a pass every few seconds, of many commands."""
EXPIRING: Final[Mapping[Any, Mapping[str, float]]] = {
    counted_time: {"COUNTED_AT_ONCE_MAX_MS": 6_000},
    expiry_duty: {"CHECKS_PER_EXPIRY": 120},
    group_expiry: {"ANSWERS_LAST_SECONDS": 2.0, "ASK_SECONDS": 1.0},
    upkeep: {"UPKEEP_SECONDS": 1.0},
    usage: {"USE_STEP_MS": 1_000},
}
"""By module: what lets a consumer group expire within a minute. Time is counted each 5 s:
more often, no member would ever be idle."""


@contextmanager
def compacted_often() -> Iterator[None]:
    """Run with passes over compacted queues every few seconds."""
    with _changed(COMPACTED):
        yield


@contextmanager
def carried_often() -> Iterator[None]:
    """Run with passes every few seconds."""
    with _changed(CARRIED):
        yield


@contextmanager
def small_tables(*, with_duties: bool = False, with_expiry: bool = False) -> Iterator[None]:
    """Run with small blocks, with duties that are done often, with an expiry of seconds."""
    chosen = {
        **SMALL,
        **(OFTEN if with_duties else {}),
        **(EXPIRING if with_expiry else {}),
    }
    with _changed(chosen):
        yield


@contextmanager
def _changed(chosen: Mapping[Any, Mapping[str, float]]) -> Iterator[None]:
    kept = [
        (module, name, getattr(module, name))
        for module, bounds in chosen.items()
        for name in bounds
    ]
    try:
        for module, bounds in chosen.items():
            for name, value in bounds.items():
                setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
