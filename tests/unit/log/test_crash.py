"""Power cuts and kills at every call that the log makes to the file system.

A scripted workload (rolls, cuts, trims, hard states, a cut of everything) runs until the nth call;
there the power fails, several times with other draws of what survives. Then the log is opened again
and must hold: everything of finished rounds, and behind it a prefix of what was written.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from dledger.log.hard_state import HardState
from dledger.log.settings import LogSettings
from dledger.types import LogIndex, MemberId, Term
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.unit.log.support import GROUP_ID, SMALL, Member, Model, Written, check_holds

PATH = "/disk/data"
SEEDS = 5
ONE_BIG = replace(SMALL, segment_size=1 << 20, checkpoint_bytes=1 << 20)


@dataclass
class Promise:
    """What a workload may rely on, and what it has written beyond."""

    durable: list[Written] = field(default_factory=list[Written])
    """Synced by a finished round, and not cut since."""
    written: list[Written] = field(default_factory=list[Written])
    """Written by a finished round, and not cut since: a kill does not lose it."""
    histories: list[list[Written]] = field(default_factory=lambda: [[]])
    """The whole log after each change since then: what is found must be a prefix of one."""
    first: set[int] = field(default_factory=lambda: {1})
    """The head may be any of these."""
    hard_states: list[HardState] = field(default_factory=lambda: [HardState()])
    """The stored one, then those that a round in flight would store."""


class Workload:
    """Runs a script against a log and keeps the promise up to date."""

    def __init__(self, fs: SimFileSystem, settings: LogSettings, seed: int = 3) -> None:
        self.fs = fs
        self.settings = settings
        self.promise = Promise()
        self.model = Model()
        self.random = Random(seed)
        self.term = 1
        self.member: Member | None = None

    def note(self) -> None:
        self.promise.histories.append(list(self.model.entries))

    def append_genesis(self) -> None:
        assert self.member is not None
        self.model.entries.append(self.member.genesis())
        self.note()

    def append(self, *sizes: int) -> None:
        assert self.member is not None
        payloads = [self.random.randbytes(size) for size in sizes]
        self.model.entries.append(self.member.append(*payloads, term=self.term))
        self.note()

    def cut(self, index: int) -> None:
        assert self.member is not None
        self.member.log.truncate_from(LogIndex(index))
        self.model.cut(index)
        self.promise.durable = self.promise.durable[: index - 1]
        self.promise.written = self.promise.written[: index - 1]
        self.term += 1
        self.note()

    def write(self) -> None:
        """Run a round that leaves the sync to a later one, as `flush: async` does."""
        self.sync(sync=False)

    def sync(self, hard_state: HardState | None = None, *, sync: bool = True) -> None:
        assert self.member is not None
        log = self.member.log
        if hard_state is not None:
            self.promise.hard_states.append(hard_state)
        taken = log.take_round(hard_state, sync=sync)
        if taken is None:
            return
        if taken.trimmed is not None:
            position = taken.trimmed
            self.promise.first.update(
                e.ref.index for e in self.model.entries if e.ref.position == position
            )
        entries = list(self.model.entries)
        taken.execute()
        log.round_finished(taken)
        del self.promise.hard_states[:-1]
        self.promise.written = entries
        self.promise.durable = entries[: log.durable_index]
        if log.durable_index == len(entries):
            self.promise.histories = [list(entries)]
        self.promise.first = {log.first_index}

    def trim(self, index: int) -> None:
        assert self.member is not None
        position = self.model.entries[index - 1].ref.position
        names = self.member.log.trim_head(position, LogIndex(index))
        assert names or self.settings is ONE_BIG

    def reopen(self, *, close: bool = True) -> None:
        assert self.member is not None
        if close:
            self.member.close()
        self.member.reopen(close=False)
        check_holds(self.member.log, self.model.entries, first=self.member.log.first_index)


def vote(term: int, member: str = "m2") -> HardState:
    return HardState(Term(term), member, {MemberId("m1"): b"1" * 16})


def script(work: Workload) -> None:
    """Everything that writes to the disk, in one run."""
    work.member = Member(work.fs, PATH, work.settings)
    work.sync(vote(1))
    work.append_genesis()
    work.sync()
    work.cut(1)
    work.append_genesis()
    work.append(100, 200)
    work.sync()
    for _ in range(3):
        work.append(600)
        work.append(1500, 20)
        work.append()
        work.sync()
    work.append(50)
    work.append(5000)
    work.append(70)
    work.sync(vote(2))
    work.append(300)
    work.append(300)
    work.cut(len(work.model.entries) - 4)  # back into an older segment
    work.append(120)
    work.sync(vote(3))
    work.cut(len(work.model.entries))
    work.sync()
    for _ in range(8):
        work.append(1000)
    work.sync()
    work.trim(9)
    work.append(10)
    work.sync()
    work.reopen()
    work.append(3000)
    work.append(3000)
    work.sync(vote(5, "m1"))
    work.cut(len(work.model.entries) - 1)
    work.append(40)
    work.sync()
    assert work.member is not None
    work.member.close()
    work.promise.first = {work.member.log.first_index}


def script_unsynced(work: Workload) -> None:
    """Rounds that leave the sync to a later one, with rolls, cuts and a trim between."""
    work.member = Member(work.fs, PATH, work.settings)
    work.append_genesis()
    work.write()
    for number in range(6):
        work.append(400, 20)
        work.write()
        work.append(700)
        work.write()
        if number % 2:
            work.cut(len(work.model.entries))
            work.append(90)
            work.write()
    work.sync(vote(2))
    work.append(300)
    work.write()
    work.append(2500)
    work.append(2500)
    work.write()
    work.trim(14)
    work.append(30)
    work.write()
    work.sync()
    work.append(10)
    work.write()
    assert work.member is not None
    work.member.close()
    work.promise.first = {work.member.log.first_index}


Script = Callable[[Workload], None]
BOTH = pytest.mark.parametrize("run", [script, script_unsynced], ids=["synced", "unsynced"])


def check_promise(fs: SimFileSystem, promise: Promise, settings: LogSettings) -> Member:
    member = Member(fs, PATH, settings, seed=77)
    log = member.log
    assert log.durable_index == log.last_index
    assert log.last_index >= len(promise.durable)
    found = next(
        history[: log.last_index]
        for history in promise.histories
        if len(history) >= log.last_index
        and (not log.last_index or history[log.last_index - 1].ref == log.ref(log.last_index))
    )
    assert log.first_index in promise.first
    check_holds(log, found, first=log.first_index)
    for kept, held in zip(promise.durable, found, strict=False):
        assert kept.ref == held.ref
    assert member.folder.load_hard_state() in promise.hard_states
    assert log.group_id == (GROUP_ID if found else b"")
    assert member.folder.identity.group_id in (b"", log.group_id)
    return member


def check_goes_on(member: Member) -> None:
    """A log that was recovered takes entries, and holds everything after another start."""
    log = member.log
    first = log.first_index
    before = [log.ref(LogIndex(i)) for i in range(first, log.last_index + 1)]
    if log.is_empty:
        before.append(member.genesis().ref)
    before += [member.append(b"later" * 300, term=99).ref for _ in range(6)]
    member.sync()
    member.reopen(close=False)
    after = [member.log.ref(LogIndex(i)) for i in range(first, member.log.last_index + 1)]
    assert after == before
    assert member.folder.identity.group_id == GROUP_ID


def run_to(
    call: int | None, settings: LogSettings, run: Script = script
) -> tuple[SimFileSystem, Workload]:
    """Run a script and stop before the given call."""
    fs = SimFileSystem(Random(9))
    work = Workload(fs, settings)

    def hook(_name: str, _path: str) -> None:
        if call is not None and fs.calls > call:
            raise PowerCut(f"at call {call}: {_name} {_path}")

    fs.hook = hook
    try:
        run(work)
    except PowerCut:
        pass
    else:
        assert call is None or fs.calls <= call
    return fs, work


def calls_of_script(settings: LogSettings, run: Script = script) -> int:
    fs, _ = run_to(None, settings, run)
    return fs.calls


@BOTH
@pytest.mark.parametrize("settings", [SMALL, ONE_BIG], ids=["many segments", "one segment"])
def test_a_power_cut_at_every_call_loses_nothing_promised(
    settings: LogSettings, run: Script
) -> None:
    calls = calls_of_script(settings, run)
    assert calls > 70
    cut_short = 0
    for call in range(calls + 1):
        for seed in range(SEEDS):
            fs, work = run_to(call, settings, run)
            work.member = None
            fs.power_cut(Random(seed * 100_000 + call))
            try:
                member = check_promise(fs, work.promise, settings)
            except BaseException as error:
                error.add_note(f"power cut at call {call} of {calls}, seed {seed}")
                raise
            cut_short += len(work.model.entries) > member.log.last_index
            check_goes_on(member)
    assert cut_short > 20, "the script must lose unsynced entries now and then"


@BOTH
@pytest.mark.parametrize("settings", [SMALL, ONE_BIG], ids=["many segments", "one segment"])
def test_a_kill_at_every_call_keeps_all_that_was_written(
    settings: LogSettings, run: Script
) -> None:
    for call in range(calls_of_script(settings, run) + 1):
        fs, work = run_to(call, settings, run)
        work.member = None
        fs.kill()
        member = check_promise(fs, work.promise, settings)
        assert member.log.last_index >= len(work.promise.written)
        # A second loss right after the start must not take back what the start has read.
        last = member.log.last_index
        refs = [member.log.ref(LogIndex(i)) for i in range(member.log.first_index, last + 1)]
        vote_found = member.folder.load_hard_state()
        taken = member.log.take_round(vote_found)
        assert taken is None or "hard_state" not in taken.describe(), "it counts as durable"
        fs.power_cut(Random(call))
        member.reopen(close=False)
        assert member.folder.load_hard_state() == vote_found
        assert member.log.last_index == last
        first = member.log.first_index
        assert refs == [member.log.ref(LogIndex(i)) for i in range(first, last + 1)]
        check_goes_on(member)


def test_a_power_cut_at_every_call_of_recovery_itself() -> None:
    for call in range(20, calls_of_script(SMALL), 7):
        for second in range(12):
            fs, work = run_to(call, SMALL)
            work.member = None
            fs.power_cut(Random(call))
            start = fs.calls

            def hook(
                name: str, path: str, limit: int = start + second, fs: SimFileSystem = fs
            ) -> None:
                if fs.calls > limit:
                    raise PowerCut(f"{name} {path}")

            fs.hook = hook
            with suppress(PowerCut):
                Member(fs, PATH, SMALL)
            fs.power_cut(Random(call + second))
            check_goes_on(check_promise(fs, work.promise, SMALL))


def test_pages_lost_by_a_failed_sync_are_written_again_at_the_next_start() -> None:
    taken_over = 0
    for seed in range(20):
        fs = SimFileSystem(Random(seed))
        member = Member(fs, PATH)
        entries = [member.genesis(), member.append(b"kept" * 200)]
        member.sync()
        entries.append(member.append(b"perhaps" * 200))
        fs.failing["sync"] = 5
        taken = member.take()
        with pytest.raises(OSError, match="simulated sync"):
            taken.execute()
        fs.failing.clear()
        fs.kill()
        member.reopen(close=False)
        last = member.log.last_index
        assert member.log.durable_index == last
        assert last >= 2
        taken_over += last == 3
        check_holds(member.log, entries[:last])
        # The kernel has forgotten that these pages never reached the disk.
        fs.power_cut(Random(seed))
        member.reopen(close=False)
        check_holds(member.log, entries[:last])
    assert taken_over > 10
