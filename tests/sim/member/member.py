"""One simulated machine: disk, clock, and the process on it, which is the product's own.

Owns: starting (real recovery), the end of a process, what befalls it (kill, power cut, pause), and
what an operator does then. How its threads write is in `process/threads.py`; what is watched, in
`watching.py`.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dledger.log.errors import DamagedFile
from dledger.log.folder import STATE_FOLDER
from dledger.log.writing.write_round import Round
from dledger.raft.api import Role
from dledger.raft.wire import message_codec
from dledger.state.machine import StateFlush
from dledger.store.store import DamagedStore, StateStore, StoreFull
from dledger.types import FlushMode, MemberId
from dledger_broker.process.member import STARTS_ANEW
from dledger_proto.exit_codes import Exit
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.sim.disk.drive import SimDrive
from tests.sim.disk.durable import DurableView
from tests.sim.disk.state_file import StateDisk
from tests.sim.faults.damage import FOLDER, STATE, is_bad_sector
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.config import SimConfig
from tests.sim.member.process import Process
from tests.sim.world.clock import MemberClock

if TYPE_CHECKING:
    from tests.sim.world.group import Group

RECOVERY_CRASH_SHARE: Final = 0.08
"""This share of all starts loses power at a drawn writing call of its recovery."""
CREATION_CRASH_SHARE: Final = 0.3
"""So many of the other starts that make the state's file lose power meanwhile."""


class SimMember:
    """A machine by name; `process` is None while nothing runs on it."""

    def __init__(self, group: "Group", name: str, random: Random) -> None:
        self.group = group
        world = group.world
        self.world = world
        self.name = name
        self.random = random
        self.clock: MemberClock = MemberClock(
            world.scheduler, random.uniform(1_000, 100_000), group.invariants.stamps.look
        )
        self.fs = SimFileSystem(Random(random.random()))
        self.state = StateDisk(self.fs, f"{FOLDER}/{STATE_FOLDER}", world.ram, name)
        self.disk = SimDrive(self.fs, random)
        self.view: DurableView = DurableView(self.fs, FOLDER, world.plan.flush)
        self.config = SimConfig.of(world.plan, group.name, name, world.plan.name_servers)
        self.process: Process | None = None
        self.apply_delay = 0.0
        """How long a slice of apply keeps the loop."""
        self.boot = 0
        self.damaged = ""
        """What the nemesis damaged. Empty: nothing, and then the member must find no damage."""
        self.flips: list[tuple[str, int, int]] = []
        """Bytes of the log that were damaged: file, offset, and what is there since."""
        self.sectors: list[tuple[str, int]] = []
        """Sectors of the log that were broken: file, number."""
        self.expected_stop: tuple[type[Exception], ...] = ()
        """Exceptions that a script provokes. Any other exception of the group is a finding."""
        self.in_next_round: Callable[[], None] | None = None
        """See `process.threads.Machine`."""
        self.in_next_save: Callable[[], None] | None = None
        """See `process.threads.Machine`."""

    @property
    def running(self) -> bool:
        """Tell whether a process exists."""
        return self.process is not None

    @property
    def paused(self) -> bool:
        """Tell whether the process stands still."""
        return self.process is not None and self.process.loop.is_paused

    @property
    def role(self) -> Role:
        """Return what the process is to its group; STOPPED when there is none."""
        return self.process.group.role if self.process is not None else Role.STOPPED

    # Starting.

    def start(self) -> None:
        """Start a process, unless one runs. A member that finds damage is wiped (D18)."""
        if self.process is not None:
            return
        self.boot += 1
        may_lose = self.world.plan.flush is FlushMode.SYNC
        if self.random.random() < RECOVERY_CRASH_SHARE and may_lose:
            self.disk.stop_after(self.random.randrange(8))
        elif self.state.is_new and self.random.random() < CREATION_CRASH_SHARE and may_lose:
            self.state.cut_at_row(self.random.randrange(3))
        process = Process(self, self.boot)
        self.world.network.process_started(self.name, process.loop)
        try:
            process.open()
        except PowerCut:
            self.world.trace(f"power cut {self.name} while it starts")
            self.world.counts["crashes in recovery"] += 1
            self._discard(process, silent=True)
            self._lose_power()
            self.start_later(0.05, 0.5)
        except (DamagedFile, DamagedStore) as error:
            self._discard(process, silent=False)
            self._release_files()
            self.found_damage(error)
        except OSError as error:  # the disk still fails or is full: an operator tries again
            self._discard(process, silent=False)
            self._release_files()
            if is_bad_sector(self, error):
                self.found_damage(error)
                return
            self.world.trace(f"start {self.name} refused {error.errno}")
            self.start_later(0.2, 1.0)
        finally:
            self.fs.hook = None

    def opened(self, process: Process) -> None:
        """Take a process whose group recovery has opened, before it does anything."""
        self.fs.hook = None
        self.process = process
        if self.damaged == STATE:  # the store that opened is whole, and replay does the rest
            self.damaged = ""
        machine = process.machine
        applied = int(machine.applied_index)
        self.world.trace(
            f"start {self.name} boot {self.boot} last {process.log.last_index} applied {applied}"
        )
        self.group.observer.started(process, applied, machine.digest)

    def open_store(self, _path: str, map_size: int) -> StateStore:
        """Open the saved state, which lies on a disk of its own."""
        return self.state.open(map_size)

    def start_later(self, low: float, high: float) -> None:
        """Start again after a drawn time, as an operator or a supervisor does."""
        self.world.scheduler.after(self.random.uniform(low, high), self._start_again)

    def _start_again(self) -> None:
        self.group.start_member(self.name)

    # Ending.

    def kill(self) -> None:
        """End the process at once: what it wrote stays in the page cache (kill -9)."""
        if self.process is not None:
            self.world.trace(f"kill {self.name}")
            self._discard(self.process, silent=False)
            self._release_files()

    def power_cut(self) -> None:
        """End the machine: what was not synced is lost or torn."""
        self.world.trace(f"power cut {self.name}")
        if self.process is not None:
            self._discard(self.process, silent=True)
        self._lose_power()

    def stop(self) -> None:
        """Ask the process to end in order (SIGTERM); it drains, hands over, saves."""
        if self.process is not None and not self.paused:
            self.world.trace(f"stop {self.name}")
            self.process.loop.terminate()

    def exited(self, process: Process, code: int) -> None:
        """Take the end of a process by itself: in order, or after a failure that it told."""
        self.world.trace(f"exit {self.name} code {code}")
        failure = process.failure
        self._discard(process, silent=False)
        self._release_files()
        if code == STARTS_ANEW:
            self.world.counts["started anew"] += 1
            self.start_later(0.0, 0.01)
        elif code == Exit.OK:
            self.world.counts["ended in order"] += 1
            self.start_later(0.1, 1.0)
        elif isinstance(failure, self.expected_stop):
            self.world.trace(f"stopped {self.name} {failure}")
        elif isinstance(failure, Exception) and (
            code == Exit.DAMAGED or (isinstance(failure, OSError) and is_bad_sector(self, failure))
        ):
            self.found_damage(failure)
        elif code == Exit.STORAGE:
            self.start_later(0.3, 2.0)
        else:
            raise Violation(Property.CRASHED, f"{self.name} ended with {code}: {failure!r}")

    def job_failed(self, job: Callable[[], Any], error: BaseException) -> None:
        """See `process.threads.Machine`."""
        owner = getattr(getattr(job, "func", job), "__self__", None)
        is_round = isinstance(owner, Round)
        if not (is_round or isinstance(owner, StateFlush)):
            self.world.counts["refill failures"] += 1  # nothing of it counts yet: it tries again
            return
        if isinstance(error, StoreFull):
            self.world.counts["state saves refused"] += 1
            return
        self.world.counts["storage failures" if is_round else "state failures"] += 1
        if self.process is not None:
            self.group.storage_failed(self.process)

    def _discard(self, process: Process, *, silent: bool) -> None:
        self.process = None
        self.world.network.process_ended(self.name, silent=silent)
        process.end()
        self.world.dead.append(process)

    def _release_files(self) -> None:
        self.fs.kill()
        self.state.kill()

    def _lose_power(self) -> None:
        torn_before = self.fs.torn_files
        self.fs.power_cut(self.random)
        self.world.counts["power cuts that took something"] += self.fs.torn_files > torn_before
        self.state.power_cut(self.random)

    # What befalls it.

    def pause(self) -> None:
        """Stop the process (SIGSTOP); the kernel goes on with what it was given."""
        if self.process is not None and not self.paused:
            self.world.trace(f"pause {self.name}")
            self.process.loop.pause()

    def resume(self) -> None:
        """Continue; what waited comes at once, in a drawn order of its sources."""
        if self.process is not None and self.paused:
            self.world.trace(f"resume {self.name}")
            self.process.loop.resume()

    def found_damage(self, error: Exception) -> None:
        """Do what `dledger repair` does: set the folder aside; the member returns as wiped."""
        if not self.damaged:
            raise Violation(Property.CRASHED, f"{self.name} finds undamaged files damaged: {error}")
        self.world.trace(f"damage found {self.name} {error}")
        self.world.counts["damage found"] += 1
        self.kill()
        self.group.wipe(self.name)
        self.start_later(0.01, 1.0)

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Damage a byte of the log; it counts as damaged until something mends it."""
        self.fs.flip(path, offset, mask)
        self.flips.append((path, offset, self.fs.byte_at(path, offset) or 0))

    def break_sector(self, path: str, number: int) -> None:
        """Let a sector of the log fail with EIO when it is read, until something mends it."""
        self.fs.break_sector(path, number)
        self.sectors.append((path, number))

    def note_mended(self) -> None:
        """Forget the damage that was mended, and the one in files that were removed."""
        flipped = any(self.fs.byte_at(path, at) == byte for path, at, byte in self.flips)
        broken = any(self.fs.is_broken(path, number) for path, number in self.sectors)
        if flipped or broken or not (self.flips or self.sectors):
            return
        self.world.trace(f"mended {self.name} {self.damaged}")
        self.world.counts["damage mended"] += 1
        self.damaged = ""
        self.flips.clear()
        self.sectors.clear()

    def break_store(self, *, full: bool) -> None:
        """Let saves of the state find no room, or fail."""
        self.state.is_full, self.state.is_failing = full, not full

    def mend_store(self) -> None:
        """Let saves of the state work again."""
        self.state.is_full = self.state.is_failing = False

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        assert self.process is None, f"{self.name} runs"
        if self.fs.exists(FOLDER):
            self.fs.wipe(FOLDER)
        self.fs.failing.clear()
        self.fs.budget_bytes = None
        self.state.wipe()
        self.damaged = ""
        self.flips.clear()
        self.sectors.clear()

    def apply_quickly(self) -> None:
        """End slow apply."""
        self.apply_delay = 0.0

    # What scripts and operators do to it.

    def input(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run something on the process's loop, and what comes of it."""
        if self.process is not None:
            self.process.run(callback, *arguments)

    def deliver(self, sender: str, data: bytes) -> None:
        """Let the group receive a message, as if it had come by the sender's link."""
        if self.process is not None:
            host = self.process.host
            self.input(host.received, MemberId(sender), message_codec.decode(data))

    def transfer(self, target: str | None) -> None:
        """Hand leadership over, if this member leads."""
        if self.process is not None:
            self.input(
                self.process.group.transfer,
                None if target is None else MemberId(target),
                lambda done, reason: None,
                self.clock.monotonic(),
            )

    def poll_disk(self) -> None:
        """Measure free space, as the upkeep does from time to time."""
        if self.process is not None:
            self.input(self.process.log.space.check)
