"""One simulated machine: disk, clock, and the process on it, driven exactly as `raft/api.py` says.

Owns: starting (real recovery), the driver's loop (inputs, outputs, write rounds, apply slices,
state saves), and what befalls a process: kill, power cut, pause. A write round takes virtual time;
it reaches the disk at a drawn moment inside that time, and a crash before that moment leaves a
drawn part of its system calls. What clients ask is in `service`.
"""

import contextlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from dledger.log.errors import DamagedFile
from dledger.log.folder import STATE_FOLDER
from dledger.log.writing.write_round import Round
from dledger.raft.api import Role
from dledger.raft.driver.deadline_timer import DEADLINE_SLACK_SECONDS
from dledger.raft.wire import loading, message_codec, messages
from dledger.raft.wire.messages import Message
from dledger.store.store import DamagedStore
from dledger.types import FlushMode, MemberId
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.sim.disk.drive import SimDrive
from tests.sim.disk.durable import DurableView
from tests.sim.disk.state_file import StateDisk
from tests.sim.faults.damage import FOLDER, STATE, is_bad_sector
from tests.sim.invariants.delivery.fetched import outputs_of
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.process import Process
from tests.sim.world.calls import Respond
from tests.sim.world.clock import MemberClock

if TYPE_CHECKING:
    from tests.sim.world.world import World

DISK_POLL = 5.0
DISK_POLL_LOW = 1.0
DUTY_SECONDS = 1.0
RECOVERY_CRASH_SHARE = 0.08
"""This share of all starts loses power at a drawn writing call of its recovery."""
CREATION_CRASH_SHARE = 0.3
"""So many of the other starts that make the state's file lose power meanwhile."""
APPLY_SLICES_MAX = 10_000
"""More slices than this for one input is an apply loop that does not end (I17)."""


class SimMember:
    """A machine by name; `process` is None while nothing runs on it."""

    def __init__(self, world: "World", name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.clock = MemberClock(
            world.scheduler, random.uniform(1_000, 100_000), world.invariants.stamps.look
        )
        self.fs = SimFileSystem(Random(random.random()))
        self.state = StateDisk(self.fs, f"{FOLDER}/{STATE_FOLDER}", world.ram, name)
        self.disk = SimDrive(self.fs, random)
        self.view = DurableView(self.fs, FOLDER, world.plan.flush)
        self.process: Process | None = None
        self.paused = False
        self.apply_delay = 0.0
        self.boot = 0
        self.damaged = ""
        """What the nemesis damaged. Empty: nothing, and then the member must find no damage."""
        self.expected_stop: tuple[type[Exception], ...] = ()
        """Exceptions that a script provokes. Any other exception of the group is a finding."""
        self.in_next_round: Callable[[], None] | None = None
        """A fault that waits for a write to be on its way to the disk."""
        self.in_next_save: Callable[[], None] | None = None
        """A fault that waits for a save of the state to be on its way to the disk."""
        self._deferred: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._only_if_due = (self._receive, self._finish_round) if world.plan.lazy_driver else ()
        """After these inputs it drains only if that is due, as a host; after others at once."""

    # What network and clients see.

    @property
    def running(self) -> bool:
        """Tell whether a process exists."""
        return self.process is not None

    @property
    def reachable(self) -> bool:
        """See `network.Endpoint.reachable`."""
        return self.process is not None

    @property
    def answering(self) -> bool:
        """See `network.Endpoint.answering`."""
        return self.process is not None and not self.paused

    @property
    def role(self) -> Role:
        """Return what the process is to its group; STOPPED when there is none."""
        return self.process.group.role if self.process is not None else Role.STOPPED

    def deliver(self, sender: str, data: bytes) -> None:
        """See `network.Endpoint.deliver`."""
        self._input(self._receive, sender, data)

    def link_up(self, peer: str) -> None:
        """See `network.Endpoint.link_up`."""
        self._input(self._link, "link_up", peer)

    def link_down(self, peer: str) -> None:
        """See `network.Endpoint.link_down`."""
        self._input(self._link, "link_down", peer)

    def dial_failed(self, peer: str) -> None:
        """See `network.Endpoint.dial_failed`."""
        self._input(self._link, "dial_failed", peer)

    def serve(self, request: object, respond: Respond) -> None:
        """See `calls.Server.serve`."""
        self._input(self._serve, request, respond)

    # Life and death.

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
        try:
            process = Process(self, self.boot)
        except PowerCut:
            self.world.trace(f"power cut {self.name} while it starts")
            self.world.counts["crashes in recovery"] += 1
            self._lose_power()
            self.world.scheduler.after(self.random.uniform(0.05, 0.5), self._start_again)
            return
        except (DamagedFile, DamagedStore) as error:
            self._release_files()
            self.found_damage(error)
            return
        except OSError as error:  # the disk still fails or is full: an operator tries again
            if is_bad_sector(self, error):
                self._release_files()
                self.found_damage(error)
                return
            self.world.trace(f"start {self.name} refused {error.errno}")
            self._release_files()
            self.world.scheduler.after(self.random.uniform(0.2, 1.0), self._start_again)
            return
        self.fs.hook = None
        self.process = process
        if self.damaged == STATE:  # the store that opened is whole, and replay does the rest
            self.damaged = ""
        machine = process.machine
        self.world.trace(
            f"start {self.name} boot {self.boot} last {process.log.last_index} "
            f"applied {machine.applied_index}"
        )
        process.guard(lambda: self._take_part(process))
        if process.ended:
            return
        self.world.scheduler.after(DISK_POLL_LOW, self._poll_disk_again, process)
        if self.world.plan.producers:
            self.world.scheduler.after(DUTY_SECONDS, self._do_duties_again, process)
        self.world.network.process_started(self.name)

    def _take_part(self, process: Process) -> None:
        machine = process.machine
        self.world.observer.started(process, int(machine.applied_index), machine.digest)
        process.group.start(self.clock.monotonic())
        self._drain(process)

    def input(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run an input of the process, as its driver would."""
        self._input(callback, *arguments)

    def start_later(self, low: float, high: float) -> None:
        """Start again after a drawn time, as an operator or a supervisor does."""
        self.world.scheduler.after(self.random.uniform(low, high), self._start_again)

    def _start_again(self) -> None:
        self.world.start_member(self.name)

    def kill(self) -> None:
        """End the process at once: what it wrote stays in the page cache (kill -9)."""
        if self.process is not None:
            self.world.trace(f"kill {self.name}")
            self._end(self.process, silent=False)
            self._release_files()

    def power_cut(self) -> None:
        """End the machine: what was not synced is lost or torn."""
        self.world.trace(f"power cut {self.name}")
        if self.process is not None:
            self._end(self.process, silent=True)
        self._lose_power()

    def _lose_power(self) -> None:
        torn_before = self.fs.torn_files
        self.fs.power_cut(self.random)
        self.world.counts["power cuts that took something"] += self.fs.torn_files > torn_before
        self.state.power_cut(self.random)

    def stop(self) -> None:
        """End the process in order, as SIGTERM does at the end of its drain."""
        process = self.process
        if process is None or self.paused:
            return
        self.world.trace(f"stop {self.name}")
        process.group.stop(self.clock.monotonic())
        if process.writing is None:
            with contextlib.suppress(OSError):  # a disk that fails at the very end
                process.log.close()
            process.saver.close_store()
            process.folder.close()
        self._end(process, silent=False)
        self._release_files()

    def _release_files(self) -> None:
        self.fs.kill()
        self.state.kill()

    def _end(self, process: Process, *, silent: bool) -> None:
        process.ended = True
        self.process = None
        self.paused = False
        self._deferred.clear()
        process.saver.end()
        if process.writing is not None and self.random.random() < 0.8:
            self.disk.stop_after(self.random.choice((0, 1, 1, 2, 3, self.random.randrange(12))))
            with contextlib.suppress(PowerCut, OSError):
                process.writing.execute()
        self.world.network.process_ended(self.name, silent=silent)
        self.world.calls.process_ended(self.name, silent=silent)
        self.world.streams.process_ended(self.name, silent=silent)

    def pause(self) -> None:
        """Stop the process (SIGSTOP); the kernel goes on with what it was given."""
        if self.process is not None and not self.paused:
            self.paused = True
            self.world.trace(f"pause {self.name}")

    def resume(self) -> None:
        """Continue; messages and timers that waited come at once, in either order."""
        if not self.paused:
            return
        self.paused = False
        self.world.trace(f"resume {self.name}")
        deferred = self._unread()
        if self.random.random() < 0.5:
            self._input(self._tick, self.process)
        for callback, arguments in deferred:
            self._input(callback, *arguments)
        self._input(self._tick, self.process)

    def _unread(self) -> list[tuple[Callable[..., None], tuple[object, ...]]]:
        """Return what waited: as it came, or as sockets are found ready, each in its order."""
        deferred, self._deferred = self._deferred, []
        if self.random.random() < 0.5:
            return deferred
        sockets: dict[object, list[tuple[Callable[..., None], tuple[object, ...]]]] = {}
        for callback, arguments in deferred:
            of_peer = callback in (self._receive, self._link)
            socket = arguments[-1 if callback == self._link else 0] if of_peer else callback
            sockets.setdefault(socket, []).append((callback, arguments))
        keys = list(sockets)
        self.random.shuffle(keys)
        return [each for key in keys for each in sockets[key]]

    def lose_waiting_input(self) -> None:
        """Drop what peers sent during a pause, as if the senders' windows had been full."""
        self._deferred = [each for each in self._deferred if each[0] != self._receive]

    def found_damage(self, error: Exception) -> None:
        """Do what `dledger repair` does: set the folder aside; the member returns as wiped."""
        if not self.damaged:
            raise Violation(Property.CRASHED, f"{self.name} finds undamaged files damaged: {error}")
        self.world.trace(f"damage found {self.name} {error}")
        self.world.counts["damage found"] += 1
        self.kill()
        self.world.wipe(self.name)
        self.world.scheduler.after(self.random.uniform(0.01, 1.0), self._start_again)

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

    def transfer(self, target: str | None) -> None:
        """Hand leadership over, if this member leads."""
        self._input(self._transfer, target)

    def poll_disk(self) -> None:
        """Measure free space, as the driver does from time to time."""
        self._input(self._poll_disk)

    def _poll_disk(self) -> None:
        assert self.process is not None
        self.process.log.space.check()

    def _poll_disk_again(self, process: Process) -> None:
        """Poll as the driver of a real member does."""
        if not process.ended:
            self.poll_disk()
            wait = DISK_POLL_LOW if process.log.space.low else DISK_POLL
            self.world.scheduler.after(wait, self._poll_disk_again, process)

    def _do_duties_again(self, process: Process) -> None:
        """Do a leader's duties, unless the world leaves the group alone."""
        if not process.ended and self.world.nemesis.running:
            service = process.service
            for duty in () if self.paused else service.duties:
                command = duty.due(service.look())
                if command is not None:
                    self._input(service.propose_for, duty, command)
            self.world.scheduler.after(DUTY_SECONDS, self._do_duties_again, process)

    def apply_quickly(self) -> None:
        """End slow apply."""
        self.apply_delay = 0.0

    # Inputs.

    def _input(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run an input of the process now, or when it is resumed; then carry out its outputs."""
        process = self.process
        if process is None:
            return
        if self.paused:
            self._deferred.append((callback, arguments))
            return
        try:
            callback(*arguments)
            if not process.ended and (callback not in self._only_if_due or self._is_due(process)):
                self._drain(process)
        except (DamagedFile, DamagedStore) as error:
            self.found_damage(error)
        except OSError as error:
            if not is_bad_sector(self, error):
                raise
            self.found_damage(error)
        except self.expected_stop as error:  # as the driver does: the process ends
            self.world.trace(f"stopped {self.name} {error}")
            self.kill()

    def _receive(self, sender: str, data: bytes) -> None:
        assert self.process is not None
        self.process.group.receive(
            MemberId(sender), message_codec.decode(data), self.clock.monotonic()
        )

    def _link(self, event: str, peer: str) -> None:
        assert self.process is not None
        getattr(self.process.group, event)(MemberId(peer), self.clock.monotonic())

    def _serve(self, request: object, respond: Respond) -> None:
        assert self.process is not None
        self.process.service.serve(request, respond)

    def _transfer(self, target: str | None) -> None:
        assert self.process is not None
        self.process.group.transfer(
            None if target is None else MemberId(target),
            lambda leader, reason: None,
            self.clock.monotonic(),
        )

    def _tick(self, process: Process | None) -> None:
        if process is not None and not process.ended:
            process.group.tick(self.clock.monotonic())

    # Outputs.

    def _is_due(self, process: Process) -> bool:
        timer = process.timer
        if timer is None or timer.callback is None:
            return True
        left = timer.time - self.world.scheduler.now - DEADLINE_SLACK_SECONDS
        return process.group.is_due(self.clock.monotonic() + left)

    def _drain(self, process: Process) -> None:
        """Carry out what the group wants. The observer looks first, before any message leaves."""
        world = self.world
        for _ in range(APPLY_SLICES_MAX):
            outputs = outputs_of(process.group, self.clock.monotonic(), self.name)
            world.observer.look(process)
            for target, message in outputs.messages:
                self._send(process, target, message)
            if process.ended:
                return
            if outputs.write is not None:
                self._begin_round(process, outputs.write)
            if not outputs.apply_ready or process.apply_due:
                break
            if self.apply_delay:
                process.apply_due = True
                world.scheduler.after(self.apply_delay, self._input, self._apply, process)
                break
            process.group.apply_slice(self.clock.monotonic())
        else:
            raise Violation(Property.BOUNDED, f"{self.name}: apply does not end")
        self._arm(process)
        process.saver.consider()
        world.stepped(self, process)

    def _apply(self, process: Process) -> None:
        if not process.ended:
            process.apply_due = False
            process.group.apply_slice(self.clock.monotonic())

    def _send(self, process: Process, target: str, message: Message) -> None:
        world = self.world
        world.observer.sending(process, target, message)
        assert isinstance(message, messages.Message)
        loaded = loading.load(message, process.log)
        if loaded is None:
            loading.check_held(message, process.log)
            return
        encoded = b"".join(message_codec.encode(loaded))
        world.trace(f"send {self.name} {target} {message.describe()}")
        world.network.send(self.name, target, encoded)

    def _arm(self, process: Process) -> None:
        deadline = process.group.next_deadline()
        if deadline is None:
            return
        delay = max(0.0005, deadline - self.clock.monotonic())
        at = self.world.scheduler.now + delay
        timer = process.timer
        if timer is not None and timer.callback is not None and timer.time <= at + 1e-9:
            return
        if timer is not None:
            timer.cancel()
        process.timer = self.world.scheduler.at(at, self._timer_fired, process)

    def _timer_fired(self, process: Process) -> None:
        process.timer = None
        if not process.ended:
            self._input(self._tick, process)

    # Write rounds.

    def _begin_round(self, process: Process, write: Round) -> None:
        assert process.writing is None, f"{self.name}: two write rounds in flight"
        process.writing = write
        length = self.disk.round_time()
        reached = self.random.random() * length
        self.world.scheduler.after(reached, self._execute, process, write, length - reached)
        if self.in_next_round is not None:
            self.world.scheduler.after(self.random.random() * reached, self.in_next_round)
            self.in_next_round = None

    def _execute(self, process: Process, write: Round, rest: float) -> None:
        if process.ended:
            return
        if self.disk.hanging:
            self.world.scheduler.after(0.05, self._execute, process, write, rest)
            return
        failure: OSError | None = None
        try:
            write.execute()
        except OSError as error:
            failure = error
        process.writing = None
        self.world.scheduler.after(rest, self._round_done, process, write, failure)

    def _round_done(self, process: Process, write: Round, failure: OSError | None) -> None:
        if process.ended:
            return
        self._input(self._finish_round, process, write, failure)

    def _finish_round(self, process: Process, write: Round, failure: OSError | None) -> None:
        now = self.clock.monotonic()
        if failure is None:
            process.group.write_finished(write, now)
            return
        self.world.trace(f"storage {self.name} failed {failure.errno}")
        self.world.counts["storage failures"] += 1
        process.group.write_failed(write, failure, now)
        self.world.storage_failed(process)
        self.kill()
        self.world.scheduler.after(self.random.uniform(0.3, 2.0), self._start_again)
