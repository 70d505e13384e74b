"""The process of a simulated member: a start makes it, and its end discards all of it."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile
from dledger.log.folder import DataFolder
from dledger.log.writing.write_round import Round
from dledger.raft.commit.applying import check_state
from dledger.raft.group import RaftGroup
from dledger.state.events import Applied
from dledger.state.machine import StateMachine
from dledger.store.store import DamagedStore
from dledger.types import MemberId
from dledger_broker.read.batches import DamagedBatch
from tests.sim.faults.damage import FOLDER, is_bad_sector
from tests.sim.member.convinced import Convinced
from tests.sim.member.saving import Saver
from tests.sim.member.service import Service
from tests.sim.world.clock import Timer

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember


class Process:
    """A running member. After its end, whatever still refers to it has no effect."""

    def __init__(self, member: "SimMember", boot: int) -> None:
        world = member.world
        self.member = member
        self.name = member.name
        self.boot = boot
        self.view = member.view
        random = Random(f"{world.plan.seed}/{member.name}/{boot}")
        self.folder = DataFolder.open(member.fs, FOLDER, "sim", "g", MemberId(member.name), random)
        self.log = CommitLog(member.fs, self.folder, world.plan.log, random)
        self.store = member.state.open()
        self.machine: StateMachine = StateMachine(self.store, "g")
        check_state(
            self.folder.state_path,
            self.machine.applied_index,
            self.log.first_index,
            self.log.last_index,
        )
        self.machine.events.subscribe(self._show)  # the invariants hear of it before any client
        self.group = RaftGroup(
            world.plan.group_settings(member.name),
            self.folder.identity,
            self.log,
            self.folder.load_hard_state(),
            self.machine,
            member.clock,
            random,
            self,
        )
        if world.plan.waits_for_callers:
            self.group._wiring.proposals._gathering._trial = Convinced()
        self.service = Service(self)
        self.ended = False
        self.timer: Timer | None = None
        self.writing: Round | None = None
        self.saver = Saver(self)
        self.apply_due = False

    def _show(self, applied: Applied) -> None:
        observer = self.member.world.observer
        observer.applied(self, applied.entry, applied.results, self.machine.digest)

    def event(self, name: str, **fields: object) -> None:
        """Take a trace event of the product (`dledger.trace.Trace`)."""
        self.member.world.product_event(self.name, name, fields)

    def guard(self, action: Callable[[], None]) -> None:
        """Run something of this process; damage that it finds ends the process (D18)."""
        if self.ended:
            return
        try:
            action()
        except (DamagedFile, DamagedStore, DamagedBatch) as error:
            self.member.found_damage(error)
        except OSError as error:
            if not is_bad_sector(self.member, error):
                raise
            self.member.found_damage(error)
