"""I19 to I22 in the state: claims, commits and failures of consumer groups, as apply answers them.

Checked once per entry, from the answers alone. A claim that is taken has the highest epoch, and an
epoch is one consumer's. A lease is
nobody else's until a claim says that this very lease is over. Commits and failures are taken of the
newest claim only, and not over a reset. A floor goes back by resets only. Attempts grow by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.state.commands.registry import decode
from dledger.state.progress.claims import ClaimQueues, ReleaseQueues
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.failures import FailRecords
from dledger.state.results import (
    FailuresStored,
    OffsetsCommitted,
    QueuesClaimed,
    QueuesReleased,
)
from dledger.types import Entry, EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


@dataclass(slots=True)
class _Seen:
    """What is known of one consumer group in one queue."""

    epoch: int = 0
    consumer: str = ""
    leased_at: int = 0
    """Index of the entry that began or renewed the lease; 0: there is none."""
    floor: int = -1
    resets: int = 0
    attempts: dict[int, int] = field(default_factory=dict[int, int])


class ProgressHistory(Invariant):
    """Keeps the claims and floors of consumer groups as apply answered them."""

    broken = Property.ONE_HOLDER

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._applied = 0
        self._seen: dict[tuple[str, bytes, int], _Seen] = {}
        self.groups: set[str] = set()
        """Names of consumer groups that somebody claimed for."""
        self.claimed = 0

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        if entry.kind is not EntryKind.COMMANDS:
            return
        for payload, result in zip(entry.payloads, results, strict=True):
            match decode(bytes(payload)), result:
                case ClaimQueues() as claim, QueuesClaimed() as claimed:
                    self._claim(claim, claimed, entry.ref.index)
                case ReleaseQueues() as release, QueuesReleased() as released:
                    for item, code in zip(release.queues, released.codes, strict=True):
                        if code is Code.OK:
                            self._of(release.consumer_group, item).leased_at = 0
                case CommitOffsets() as commit, OffsetsCommitted() as committed:
                    self._commit(commit, committed)
                case FailRecords() as failed, FailuresStored() as stored:
                    self._fail(failed, stored)
                case _:
                    continue

    def _claim(self, claim: ClaimQueues, claimed: QueuesClaimed, index: int) -> None:
        self.groups.add(claim.consumer_group)
        for item, row in zip(claim.queues, claimed.rows, strict=True):
            if row.code is not Code.OK:
                continue
            assert row.row is not None
            self.claimed += 1
            seen = self._of(claim.consumer_group, item)
            who = f"{claim.consumer_group} {item.describe()}: {claim.member_id}"
            if item.epoch < seen.epoch:
                self.fail(f"{who} claimed after epoch {seen.epoch}")
            if item.epoch == seen.epoch and claim.member_id != seen.consumer:
                self.fail(f"{who} claimed with the epoch of {seen.consumer}")
            if claim.member_id != seen.consumer and seen.leased_at not in (0, item.over):
                self.fail(f"{who} claimed in the lease of {seen.consumer}")
            if row.row.floor < seen.floor:
                self.fail(f"{who} got floor {row.row.floor} after {seen.floor}")
            seen.epoch, seen.consumer = item.epoch, claim.member_id
            seen.leased_at = index if row.lease_left_ms else 0
            seen.floor, seen.resets = row.row.floor, row.row.resets

    def _commit(self, commit: CommitOffsets, committed: OffsetsCommitted) -> None:
        if commit.consumer_group not in self.groups:
            return
        for item, code, stored in zip(
            commit.offsets, committed.codes, committed.stored_offsets, strict=True
        ):
            if code is not Code.OK:
                continue
            seen = self._of(commit.consumer_group, item)
            if commit.reset:
                seen.floor, seen.attempts = stored, {}
                seen.resets += 1
                continue
            who = f"{commit.consumer_group} {item.describe()} of {commit.member_id}"
            if item.epoch and (item.epoch, commit.member_id) != (seen.epoch, seen.consumer):
                self.fail(f"{who} is taken, the claim is {seen.consumer}'s with {seen.epoch}")
            if item.epoch and item.resets != seen.resets:
                self.fail(f"{who} is taken over reset {seen.resets}")
            if stored < max(seen.floor, item.offset):
                self.fail(f"{who}: floor {stored} after {seen.floor}")
            seen.floor = stored

    def _fail(self, command: FailRecords, stored: FailuresStored) -> None:
        for item, row in zip(command.records, stored.rows, strict=True):
            if row.code is not Code.OK:
                continue
            seen = self._of(command.consumer_group, item)
            who = f"{command.consumer_group} {item.describe()} of {command.member_id}"
            if (item.epoch, command.member_id) != (seen.epoch, seen.consumer):
                self.fail(f"{who} is taken, the claim is {seen.consumer}'s with {seen.epoch}")
            before = seen.attempts.get(item.offset, row.attempts - 1)
            if not before <= row.attempts <= before + 1:
                self.fail(f"{who}: {row.attempts} attempts after {before}")
            seen.attempts[item.offset] = row.attempts

    def _of(self, group: str, item: object) -> _Seen:
        key = group, getattr(item, "topic_id"), getattr(item, "queue")  # noqa: B009
        return self._seen.setdefault(key, _Seen())
