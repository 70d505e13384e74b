"""When the state is saved: never before the log behind it is synced (D6)."""

from collections.abc import Callable
from typing import cast

from dledger.log.commit_log import CommitLog
from dledger.raft.driver.saving import SavedMachine, Saving
from dledger.raft.driver.worker import Worker
from dledger.types import LogIndex


class Flush:
    def __init__(self, applied_index: LogIndex) -> None:
        self.applied_index = applied_index

    def execute(self) -> None: ...


class Machine:
    """Has applied up to `applied_index`."""

    needs_flush = is_backlogged = False

    def __init__(self) -> None:
        self.applied_index = LogIndex(0)
        self.saved_index = LogIndex(0)

    def freeze(self) -> Flush:
        return Flush(self.applied_index)

    def flush_finished(self, flush: Flush) -> None:
        self.saved_index = flush.applied_index


class Log:
    durable_index = 0


class InlineWorker:
    """Runs a job at once."""

    def submit(
        self, job: Callable[[], object], done: Callable[[object, BaseException | None], None]
    ) -> None:
        job()
        done(None, None)


def test_a_state_is_saved_only_up_to_what_the_log_has_synced() -> None:
    """`flush: async`: entries are applied before they are synced, and a power cut may take them."""
    machine, log = Machine(), Log()
    saving = Saving(
        cast("SavedMachine", machine),
        cast("CommitLog", log),
        cast("Worker", InlineWorker()),
        lambda _error: None,
        interval=0.1,
        full=None,
    )
    machine.applied_index = LogIndex(9)
    log.durable_index = 8
    saving.consider(10.0)
    saving.consider(11.0)
    assert machine.saved_index == 0
    assert not saving.is_done
    log.durable_index = 9
    saving.consider(11.1)
    assert machine.saved_index == 9
    assert saving.is_done
