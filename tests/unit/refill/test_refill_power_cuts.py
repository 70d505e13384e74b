"""A refill that power ends at any of its steps: the member has its old data, or all of the new.

Goal: nothing in between is ever opened, and whatever was staged can be gone on with. Method: the
same refill again and again, with a power cut one call of the disk later each time.
"""

from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pytest

from dledger.log.atomic_file import CorruptFile
from dledger.log.commit_log import CommitLog
from dledger.log.hard_state import HardState, store_hard_state
from dledger.log.identity import Identity
from dledger.log.memory.chain import Chain
from dledger.refill.install import install
from dledger.refill.staging import Staging
from dledger.refill.state_dump import write_dump
from dledger.state.machine import APPLIED_KEY, APPLIED_VALUE
from dledger.store.store import Row, StateStore
from dledger.types import LogIndex, MemberId, Term
from dledger_proto.entry import CorruptEntry
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.sim.disk.ram import RamFolder
from tests.sim.disk.state_file import StateDisk
from tests.unit.log.support import (
    GROUP_ID,
    SMALL,
    Member,
    fill,
    filled,
    frames_of,
    headers_in,
    open_folder,
)

PATH = "/data"
OWN_ROWS = [(b"\x20own%d" % number, b"old") for number in range(5)]
LIVES = {MemberId("m1"): b"1" * 16, MemberId("m2"): b"2" * 16}
OWN_STATE = HardState(Term(1), "m2", LIVES, quarantined=True)


@dataclass(frozen=True)
class Gift:
    """What a giver gives: a log whose head was trimmed, and a state that belongs to it."""

    base: Chain
    pieces: list[bytes]
    first: int
    last: int
    last_crc: int
    rows: list[Row]


def applied_row(index: int) -> Row:
    return APPLIED_KEY, APPLIED_VALUE.pack(index, 1, 1, 1, bytes(32))


@cache
def gift() -> Gift:
    """Return the one gift of all tests."""
    giver, model = filled((SimFileSystem(Random(1)), PATH), 40)
    giver.sync()
    fill(giver, model, 5, seed=2, term=3)
    giver.sync()
    log = giver.log
    log.trim_head(log.ref(LogIndex(20)).position, LogIndex(20))
    giver.sync()
    first, last = int(log.first_index), int(log.last_index)
    assert 1 < first < last
    middle = (first + last) // 2
    rows = [applied_row(last - 3), *((b"\x20new%02d" % n, bytes(200)) for n in range(30))]
    return Gift(
        log.base, [frames_of(log, first, middle), frames_of(log, middle + 1, last)],
        first, last, log.last_crc, rows,
    )  # fmt: skip


class Machine:
    """A member with a short log and a state, that is refilled."""

    def __init__(self, ram: RamFolder, name: str, own: int = 3) -> None:
        self.fs = SimFileSystem(Random(1))
        self.state = StateDisk(self.fs, f"{PATH}/state", ram, name)
        member = Member(self.fs, PATH)
        member.genesis()
        for number in range(own):
            member.append(b"%d" % number)
        member.sync(OWN_STATE)
        self.own_last = int(member.log.last_index)
        member.close()
        store = self.open_store()
        for key, value in [applied_row(self.own_last), *OWN_ROWS]:
            store.put(key, value)
        save(store)
        store.close()

    def open_store(self) -> StateStore:
        return self.state.open()

    def staging(self) -> Staging:
        identity = self.identity()
        return Staging(self.fs, PATH, identity, SMALL, Random(7))

    def identity(self) -> Identity:
        folder = open_folder(self.fs, PATH)
        folder.close()
        return folder.identity

    def stage(self, gift: Gift) -> None:
        """Stage what is missing of the gift, and mark it as whole."""
        staging = self.staging()
        if not staging.resume():
            staging.begin(gift.base, GROUP_ID)
        end = gift.first - 1
        for piece in gift.pieces:
            count = len(headers_in(piece))
            if staging.log.last_index == end:
                staging.append(piece)
            end += count
            if staging.log.last_index < end:  # a part of the piece is there
                staging.begin(gift.base, GROUP_ID)
                return self.stage(gift)
        write_dump(self.fs, "/dump", gift.rows)
        dump = self.fs.content("/dump")
        half = len(dump) // 2
        staging.append_state(0, dump[:half])
        staging.append_state(half, dump[half:])
        assert staging.complete(self.own_last, GROUP_ID) == ""
        return None

    def start(self) -> tuple[CommitLog, dict[bytes, bytes], HardState, str]:
        """Open the member as its process does."""
        folder = open_folder(self.fs, PATH)
        said = install(folder, self.open_store)
        log = CommitLog(self.fs, folder, SMALL, Random(3))
        store = self.open_store()
        rows = dict(store.saved_rows())
        store.close()
        hard_state = folder.load_hard_state()
        log.close()
        folder.close()
        return log, rows, hard_state, said

    def power_cut(self, seed: int) -> None:
        self.fs.hook = None
        self.fs.power_cut(Random(seed))
        self.state.power_cut(Random(seed))


def save(store: StateStore) -> None:
    flush = store.freeze()
    assert flush is not None
    flush.execute()
    store.flush_finished(flush)


def check_new(machine: Machine, gift: Gift) -> None:
    log, rows, hard_state, _ = machine.start()
    assert (log.first_index, log.last_index, log.last_crc) == (gift.first, gift.last, gift.last_crc)
    assert rows == dict(gift.rows)
    assert hard_state == replace(OWN_STATE, term=Term(3), vote=None)
    assert not machine.staging().resume(), "it would write to the files of the member's log"


def test_power_may_end_a_refill_at_any_step() -> None:
    ram = RamFolder()
    try:
        step = seen_old = seen_new = 0
        while True:
            machine = Machine(ram, f"{step}")
            left = step

            def cut(_call: str, _path: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise PowerCut

            machine.fs.hook = cut
            try:
                machine.stage(gift())
                machine.start()
            except PowerCut:
                machine.power_cut(step)
            else:
                machine.fs.hook = None
                check_new(machine, gift())
                break
            log, rows, hard_state, said = machine.start()
            if log.first_index == 1:
                seen_old += 1
                assert (log.last_index, said) == (machine.own_last, "")
                assert rows == dict([applied_row(machine.own_last), *OWN_ROWS])
                assert hard_state == OWN_STATE
                machine.stage(gift())
            else:
                seen_new += 1
            check_new(machine, gift())
            step += 1
        assert seen_old > 20
        assert seen_new > 20
    finally:
        ram.close()


def test_a_member_without_data_ends_up_in_quarantine() -> None:
    """Its group had trimmed the first entry, so it could not even form (D18)."""
    ram = RamFolder()
    fs = SimFileSystem(Random(1))
    folder = open_folder(fs, PATH)
    life = folder.identity.incarnation
    store_hard_state(fs, PATH, HardState())
    state = StateDisk(fs, f"{PATH}/state", ram, "empty")
    staging = Staging(fs, PATH, folder.identity, SMALL, Random(7))
    staging.begin(gift().base, GROUP_ID)
    for piece in gift().pieces:
        staging.append(piece)
    write_dump(fs, "/dump", gift().rows)
    staging.append_state(0, fs.content("/dump"))
    assert staging.complete(0, b"") == ""
    folder.close()
    folder = open_folder(fs, PATH)
    assert install(folder, state.open)
    assert (folder.identity.group_id, folder.identity.incarnation) == (GROUP_ID, life)
    assert folder.load_hard_state() == HardState(Term(3), None, {}, quarantined=True)
    ram.close()


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_refill_of_an_earlier_life_is_removed(is_complete: bool) -> None:
    """Somebody removed all of a member's data but its refill, which promises nothing for it."""
    ram = RamFolder()
    machine = Machine(ram, "earlier")
    if is_complete:
        machine.stage(gift())
    else:
        machine.staging().begin(gift().base, GROUP_ID)
    for name in machine.fs.names(PATH):
        if name != "refill":
            machine.fs.wipe(f"{PATH}/{name}")
    machine.state.wipe()
    folder = open_folder(machine.fs, PATH, seed=9)
    assert install(folder, machine.open_store) == ""
    assert folder.identity.group_id == b""
    assert machine.fs.names(folder.log_path) == []
    folder.close()
    assert not machine.staging().resume()
    ram.close()


def test_what_is_not_whole_is_refused_and_says_why() -> None:
    ram = RamFolder()
    machine = Machine(ram, "refused")
    staging = machine.staging()
    staging.begin(gift().base, GROUP_ID)
    staging.append(gift().pieces[0])
    with pytest.raises(CorruptEntry):
        staging.append(gift().pieces[0])
    damaged = bytearray(gift().pieces[1])
    damaged[-1] ^= 1
    with pytest.raises(CorruptEntry):
        staging.append(bytes(damaged))
    assert "state is not whole" in staging.complete(machine.own_last, GROUP_ID)
    write_dump(machine.fs, "/dump", gift().rows)
    dump = machine.fs.content("/dump")
    with pytest.raises(CorruptFile, match="0 bytes of it are here"):
        staging.append_state(10, dump[10:])
    staging.append_state(0, dump[:-1])
    assert "state is not whole" in staging.complete(machine.own_last, GROUP_ID)
    staging.append_state(0, dump)
    assert "has applied entry" in staging.complete(machine.own_last, GROUP_ID), "the log is short"
    assert "own log at 1000" in staging.complete(1000, GROUP_ID), "the own log is the better one"
    assert "of group id" in staging.complete(machine.own_last, bytes(16))
    staging.append(gift().pieces[1])
    assert staging.complete(machine.own_last, GROUP_ID) == ""
    ram.close()
