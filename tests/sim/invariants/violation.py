"""The closed list of properties that a simulated world may break."""

import enum
from dataclasses import dataclass


class Property(enum.Enum):
    """The invariants of docs/invariants.md, and what the end of a run demands."""

    ELECTION_SAFETY = "I1 at most one leader per term"
    VOTES_OF_MAJORITY = "I1 who leads has the votes of a majority"
    ONE_VOTE = "I1 one vote per member and term, across restarts and incarnations"
    LOG_MATCHING = "I2 equal index and term, equal history"
    LEADER_COMPLETENESS = "I3 a leader holds everything committed in earlier terms"
    STATE_MACHINE_SAFETY = "I4 no two members apply different entries at one index"
    DURABLE_BEFORE_VISIBLE = "I5 what a message promises is on the sender's disk before it leaves"
    COMMITTED_ON_MAJORITY = "I6 a committed entry is on the disks of a majority"
    NO_COMMITTED_TRUNCATION = "I7 nothing committed is truncated"
    COMMITTED_READS = "I8 consumers see only committed records, at their one offset"
    CONTIGUOUS_OFFSETS = "I8 a queue's offsets have no gaps and no overlaps"
    PRODUCER_ORDER = "I9 growing offsets per producer and queue, no sequence missing or repeated"
    PRODUCER_VERDICTS = "D11 epochs and sequences decide what becomes of a batch"
    LOOKUP = "S52 a lookup by key, id, time or offset finds what is stored, and nothing else"
    STAMPS = "D8 the leaders' stamps never go back, and are right while most clocks are"
    PRODUCERS_KEPT = "D11 no producer is forgotten before its time, whatever clocks do"
    LONG_POLL = "S53 a reader that waits is woken by what it waits for"
    TRIMS = "S52 a queue's minimum moves by trims alone, and never past a hold"
    TOPICS = "D14 a topic is what its administrator was told, in every group"
    STATE_MOVES_TOGETHER = "I10 equal applied index, equal state"
    OFFSETS_NEVER_BACK = "I14 a stored group offset never goes back"
    ONE_HOLDER = "I19 a queue of a consumer group has one holder, and epochs never go back"
    DELIVERED = "I20 a consumer group gets each record that is committed and due, in its order"
    NOT_AGAIN = "I21 what is done is not delivered again, unless it is reset"
    ATTEMPTS = "I22 attempts grow by one with each failure, and with nothing else"
    TIMERS = "I23 a timer fires once, and never early"
    SCHEDULES = "I23 each time of a schedule gives one message at most, never early"
    GROUPS_KEPT = "D20 no consumer group expires that was used within its expiry"
    DEAD_LETTERS = "I24 a dead letter is in one place"
    CHECKED_BYTES = "I15 every byte served is the byte that was sent"
    STORAGE_ERROR_STOPS = "I16 after a storage error nothing is promised"
    BOUNDED = "I17 every queue and buffer is bounded"
    FETCHED = "a driver that fetches only when there are outputs misses none"
    MONOTONIC = "term, commit and applied index never go back in one process"
    REAL_TIME_READS = "D9 a confirmed read sees everything acknowledged before it began"
    OUTCOME = "D11 a definite failure is never visible, an acknowledgement never wrong"
    REFILLED = "D18 a refill brings committed entries only"
    FORGOTTEN = "D18 nobody is said to have forgotten but an old copy of a disk"
    ACKNOWLEDGED_LOST = "the end: every acknowledged batch is on every member"
    PHANTOM = "the end: nothing is stored that nobody sent"
    DUPLICATE = "the end: no idempotent batch is stored twice"
    CALM = "the end: a group that is left alone, or struck once, does as well as it promises"
    CONVERGENCE = "the end: with all faults off the group converges and serves"
    CRASHED = "a member raised an exception that it must not raise"


@dataclass(slots=True, eq=False)
class Violation(Exception):
    """One broken property, at a virtual time, with the evidence in a sentence."""

    broken: Property
    detail: str

    def __str__(self) -> str:
        return f"{self.broken.name} ({self.broken.value}): {self.detail}"
