"""The simulated disk of the saved state: the product's store on LMDB's own file, torn and aged.

Goal: what a disk does to the file is what disks do, and the product answers as it promises. Method:
random saves, ends and faults against a list of what was saved. `StateDisk.open` compares all rows.
"""

from collections import Counter
from random import Random

import pytest

from dledger.log.folder import STATE_FOLDER
from dledger.store.store import DamagedStore, Flush, StateStore, StoreFailed, StoreFull
from tests.sim.disk import ram
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.sim.disk.ram import RamFolder
from tests.sim.disk.state_file import StateDisk, WrongState
from tests.sim.world.plan import draw_plan
from tests.sim.world.world import World

PATH = f"/data/{STATE_FOLDER}"
ROUNDS = 60

Saved = dict[bytes, bytes]


class Machine:
    """A machine whose process saves rows, and what it may find when it starts again."""

    def __init__(self, random: Random, name: str = "a") -> None:
        self.random = random
        self.ram = RamFolder()
        self.system = SimFileSystem(random)
        self.system.make_folder(PATH)
        for path in ("", "/data"):
            self.system.sync_folder(path)
        self.disk = StateDisk(self.system, PATH, self.ram, name)
        self.saved: Saved = {}
        self.store = self.disk.open()

    def write(self) -> Flush:
        """Change some rows and freeze them."""
        for _ in range(self.random.choice((1, 5, 60))):
            key = b"\x20%03d" % self.random.randrange(300)
            if self.random.random() < 0.3:
                self.store.delete(key)
            else:
                self.store.put(key, self.random.randbytes(self.random.choice((9, 90, 5_000))))
        flush = self.store.freeze()
        assert flush is not None
        return flush

    def save(self) -> None:
        """Save, and know of it."""
        flush = self.write()
        flush.execute()
        self.store.flush_finished(flush)
        self.saved = rows_of(self.store)

    def cut(self) -> None:
        """Cut the power."""
        self.system.power_cut(self.random)
        self.disk.power_cut(self.random)

    def start(self) -> Saved:
        """Start the next process; return what it finds."""
        self.store = self.disk.open()
        return rows_of(self.store)


def rows_of(store: StateStore) -> Saved:
    return dict(store.scan(b"\x20", b"\x21", 1_000))


def after(flush: Flush, saved: Saved) -> Saved:
    changed = {key: value for key, value in flush.overlay.values.items() if value is not None}
    kept = {key: value for key, value in saved.items() if key not in flush.overlay.values}
    return kept | {key: bytes(value) for key, value in changed.items()}


def test_what_was_saved_stays_and_what_was_under_way_is_there_whole_or_not_at_all() -> None:
    random = Random(7)
    machine = Machine(random)
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        for _ in range(random.randrange(4)):
            machine.save()
        flush = machine.write()
        wanted = after(flush, machine.saved)
        row = random.choice((0, len(flush.overlay.values) // 2, 1_000))
        machine.disk.cut_at_row(row)
        with pytest.raises(PowerCut):
            flush.execute()
        is_kill = random.random() < 0.3
        if is_kill:
            machine.system.kill()
            machine.disk.kill()
        else:
            machine.cut()
        found = machine.start()
        assert found in (machine.saved, wanted)
        if row < 1_000 or is_kill:
            assert found == (machine.saved if row < 1_000 else wanted)
        elif wanted != machine.saved:
            seen["lost" if found == machine.saved else "kept"] += 1
        machine.saved = found
    assert min(seen["lost"], seen["kept"]) > 3, seen
    machine.ram.close()


def test_pages_that_a_disk_lost_are_found_damaged_or_are_a_whole_commit() -> None:
    random = Random(8)
    machine = Machine(random)
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        for _ in range(random.randrange(1, 6)):
            machine.save()
        machine.cut()
        assert machine.disk.lose_synced(random)
        machine.disk.power_cut(random)  # again, before a process has looked: nothing more is lost
        try:
            found = machine.start()
        except DamagedStore as error:
            seen["damaged"] += 1
            seen["real paths named"] += machine.ram.path in str(error)
            machine.system.wipe(PATH)
            machine.disk.wipe()
            found = machine.start()
            assert found == {}
        else:
            seen["whole"] += 1
        machine.saved = found
    assert min(seen["damaged"], seen["whole"]) > 3, seen
    assert not seen["real paths named"], "such a path differs from run to run"
    machine.ram.close()


def test_a_row_that_rots_is_noticed_when_it_is_read() -> None:
    """By the process that has the store open, and by the next one."""
    noticed = 0
    for seed in range(20):
        machine = Machine(Random(seed))
        machine.save()
        assert machine.disk.rot(machine.random)
        for key, value in machine.saved.items():
            try:
                assert machine.store.get(key) == value
            except DamagedStore:
                noticed += 1
        machine.system.kill()
        machine.disk.kill()
        with pytest.raises(DamagedStore):
            machine.start()
        machine.ram.close()
    assert noticed > 10, "the others are the store's own rows"


@pytest.mark.parametrize("row", [None, 0, 1])
def test_a_creation_that_was_cut_off_is_a_new_store(row: int | None) -> None:
    """Nothing is synced before the first commit."""
    for seed in range(30):
        machine = Machine(Random(seed))
        machine.cut()
        machine.system.wipe(PATH)
        machine.disk.wipe()
        if row is not None:
            machine.disk.cut_at_row(row)
            with pytest.raises(PowerCut):
                machine.start()
            machine.cut()
        assert machine.start() == {}
        machine.save()
        machine.cut()
        assert machine.start() == machine.saved
        machine.ram.close()


def test_a_state_that_nobody_saved_is_noticed() -> None:
    """The simulation's own check, which a broken product must meet."""
    machine = Machine(Random(9))
    machine.save()
    machine.cut()
    machine.disk._expected = [{}]
    with pytest.raises(WrongState):
        machine.start()
    machine.ram.close()


def test_a_full_disk_refuses_and_a_failing_one_fails() -> None:
    machine = Machine(Random(10))
    machine.save()
    flush = machine.write()
    machine.disk.is_full = True
    with pytest.raises(StoreFull):
        flush.execute()
    machine.disk.is_full = False
    machine.disk.is_failing = True
    with pytest.raises(StoreFailed, match="Input/output error") as failed:
        flush.execute()
    assert not isinstance(failed.value, DamagedStore | StoreFull)
    with pytest.raises(StoreFailed, match="failed before"):
        machine.store.get(b"\x20none")
    machine.disk.kill()
    machine.system.kill()
    assert machine.start() == machine.saved
    machine.disk.is_failing = False
    machine.save()
    machine.ram.close()


def test_a_dead_process_does_nothing_and_a_second_one_waits() -> None:
    machine = Machine(Random(11))
    machine.save()
    dead = machine.store
    with pytest.raises(StoreFailed, match="another process uses it"):
        machine.disk.open()
    machine.disk.kill()
    assert machine.start() == machine.saved
    for use in (lambda: dead.get(b"\x20other"), lambda: dead.scan(b"\x20", b"\x21", 1)):
        with pytest.raises(StoreFailed):
            use()
    dead.put(b"\x20key", b"value")
    flush = dead.freeze()
    assert flush is not None
    with pytest.raises(StoreFailed):
        flush.execute()
    dead.close()
    assert rows_of(machine.store) == machine.saved
    machine.store.close()
    assert machine.start() == machine.saved
    machine.ram.close()


def test_an_old_copy_comes_back_as_it_was() -> None:
    machine = Machine(Random(12))
    machine.save()
    old, copy = machine.saved, machine.disk.copy()
    machine.save()
    machine.cut()
    machine.disk.put_back(copy)
    assert machine.start() == old
    machine.ram.close()


def test_no_folder_is_left_behind() -> None:
    """Neither by a world that ran, nor by one that failed, nor by one that never ends."""
    ram.close_all()
    plan = draw_plan(3, members=1)
    for fails in (False, True):
        world = World(plan)
        assert ram.left_behind()
        if fails:
            world.scheduler.after(0.2, pytest.fail, "as the world is to do")
            with pytest.raises(pytest.fail.Exception):
                world.run()
        else:
            world.run()
        assert not ram.left_behind()
    world = World(plan)
    world.group.start_member(world.group.names[0])
    assert ram.left_behind()
    ram.close_all()
    assert not ram.left_behind()


def test_one_run_is_like_the_other() -> None:
    """Pages included: what a power cut draws depends on which of them differ."""

    def contents() -> list[bytes]:
        machine = Machine(Random(13))
        found = []
        for _ in range(10):
            machine.save()
            machine.write().execute()
            machine.cut()
            found.append(machine.disk.copy().content)
            machine.start()
        machine.ram.close()
        return found

    assert contents() == contents()
