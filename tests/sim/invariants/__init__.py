"""The invariants of a simulated world, one property per file, and the set that a world checks.

base        What every invariant is: a watcher of facts about members
violation   The closed list of what a simulated world may be found guilty of
agreement/  Invariants of Raft, the log and the state
delivery/   Invariants of what clients send and read
"""

from collections.abc import Callable, Sequence

from dledger.log.hard_state import HardState
from tests.sim.invariants.agreement.committed_on_majority import CommittedOnMajority
from tests.sim.invariants.agreement.durable_before_visible import DurableBeforeVisible
from tests.sim.invariants.agreement.election_safety import ElectionSafety
from tests.sim.invariants.agreement.leader_completeness import LeaderCompleteness
from tests.sim.invariants.agreement.log_matching import LogMatching
from tests.sim.invariants.agreement.monotonic import Monotonic
from tests.sim.invariants.agreement.no_committed_truncation import NoCommittedTruncation
from tests.sim.invariants.agreement.state_machine_safety import StateMachineSafety
from tests.sim.invariants.agreement.state_moves_together import StateMovesTogether
from tests.sim.invariants.agreement.votes_of_majority import VotesOfMajority
from tests.sim.invariants.base import Facts, Invariant
from tests.sim.invariants.delivery.offsets_never_back import OffsetsNeverBack
from tests.sim.invariants.delivery.producer_verdicts import ProducerVerdicts
from tests.sim.invariants.delivery.progress import ProgressHistory
from tests.sim.invariants.delivery.queue_contents import Contents, QueueContents
from tests.sim.invariants.delivery.right_stamps import RightStamps
from tests.sim.invariants.delivery.schedules import Schedules
from tests.sim.invariants.delivery.trims_and_holds import TrimsAndHolds
from tests.sim.world.clock import MemberClock


class InvariantSet:
    """Every invariant over one set of facts."""

    def __init__(
        self,
        names: Sequence[str],
        stored: Contents,
        hard_state: Callable[[str], HardState | None],
        clocks: Callable[[], Sequence[MemberClock]],
        true_ms: Callable[[], int],
    ) -> None:
        facts = self.facts = Facts(names)
        self.contents = QueueContents(facts, stored)
        self.digests = StateMovesTogether(facts)
        self.verdicts = ProducerVerdicts(facts)
        self.stamps = RightStamps(facts, clocks, true_ms)
        self.trims = TrimsAndHolds(facts, self.contents, self.stamps)
        self.progress = ProgressHistory(facts)
        self.schedules = Schedules(facts)
        self.offsets = OffsetsNeverBack(facts, self.contents, self.progress.groups)
        self.all: list[Invariant] = [
            LogMatching(facts),
            NoCommittedTruncation(facts),
            ElectionSafety(facts),
            VotesOfMajority(facts),
            LeaderCompleteness(facts),
            CommittedOnMajority(facts),
            Monotonic(facts),
            StateMachineSafety(facts),
            self.stamps,
            self.digests,
            self.verdicts,
            self.contents,
            self.progress,
            self.offsets,
            self.trims,
            self.schedules,
            DurableBeforeVisible(facts, hard_state),
        ]
