"""The invariants of a simulated world, one property per file, and the set that a world checks.

base                     What every invariant is: a watcher of facts about members
committed_on_majority    I6: an entry is on the disks of a majority when it is first seen
durable_before_visible   I5 and D4: what a message promises is on the sender's disk
election_safety          I1: at most one leader is elected in a term
fetched                  A driver that drains only what `has_outputs` announces misses nothing
leader_completeness      I3: a later leader holds every committed entry
log_matching             I2: two entries of equal index and term are equal, and so are all before
monotonic                Term and commit index never go back in one process
no_committed_truncation  I7: no entry at or below the commit index is removed from the tail
offsets_never_back       I14: a stored group offset grows, unless it is reset
producer_verdicts        D11: verdicts on producers' batches follow from the log alone
queue_contents           I8 and I9: contiguous offsets, no batch missing or stored twice
right_stamps             D8: while most clocks are right, so is the group's time
state_machine_safety     I4, state-machine safety
state_moves_together     I10: applied index and derived state move together
trims_and_holds          S52: a queue's minimum moves by trims alone, and never beyond a hold
violation                The closed list of what a simulated world may be found guilty of
votes_of_majority        I1, from the other end: who leads was voted for by a majority
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
from tests.sim.invariants.delivery.queue_contents import QueueContents
from tests.sim.invariants.delivery.right_stamps import RightStamps
from tests.sim.invariants.delivery.trims_and_holds import TrimsAndHolds
from tests.sim.world.clock import MemberClock


class InvariantSet:
    """Every invariant over one set of facts."""

    def __init__(
        self,
        names: Sequence[str],
        hard_state: Callable[[str], HardState | None],
        clocks: Callable[[], Sequence[MemberClock]],
        true_ms: Callable[[], int],
    ) -> None:
        facts = self.facts = Facts(names)
        self.contents = QueueContents(facts)
        self.digests = StateMovesTogether(facts)
        self.verdicts = ProducerVerdicts(facts)
        self.stamps = RightStamps(facts, clocks, true_ms)
        self.trims = TrimsAndHolds(facts, self.contents, self.stamps)
        self.offsets = OffsetsNeverBack(facts, self.contents)
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
            self.offsets,
            self.trims,
            DurableBeforeVisible(facts, hard_state),
        ]
