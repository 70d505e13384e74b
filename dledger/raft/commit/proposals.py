"""Group commit and the fate of every proposal. Pure but for the entries it appends.

Owns: how payloads are cut into proposals and proposals into entries, the bounds of both (I17), and
the one call of each `settled` (L7). Does not own whether a proposal is taken (`refusals.py`), when
entries are cut (`cutting.py`), nor how entries spread (`replication/`).

One rule cuts into entries (`Proposals.cut`): an entry holds proposals of one kind in their order,
up to `ENTRY_SIZE_TARGET` bytes, `ENTRY_PAYLOADS_MAX` payloads and `ENTRY_ROWS_MAX` rows that apply
reads. A single proposal may exceed the size. Callers with many payloads that need not stay together
propose them in `portions`.

A proposal ends exactly once:

  refused at once            NOT_STORED   not leader, busy, draining, disk full, too large
  waiting, leadership lost   NOT_STORED   NOT_LEADER: no log ever held it
  in an entry, applied       STORED       with the machine's results, on whichever member applies it
  in an entry, replaced      NOT_STORED   another entry is committed at its index
  in an entry, undecided     UNKNOWN      `DECISION_LIMIT` after this member lost leadership
  in an entry, undecided     UNKNOWN      when the member stops
  in an entry that was cut   UNKNOWN      when this member leads again, within `DECISION_LIMIT`

The time limit keeps a caller from waiting for a member that was cut off. The caller then repeats
the write at the new leader, which recognises it (D11).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from dledger.raft.commit.gathering import Gathering
from dledger.types import Buffer, EntryKind, LogIndex, OnSettled, Settled, Term
from dledger_proto.entry import ENTRY_HEADER_SIZE
from dledger_proto.errors import Code, Outcome
from dledger_proto.limits import (
    ENTRY_PAYLOADS_MAX,
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_MAX,
    ENTRY_SIZE_TARGET,
)

PORTION_SIZE_TARGET: Final = ENTRY_SIZE_TARGET // 4
"""Payloads that need not stay together are proposed in portions of this size, so that entries of
them come close to their own target."""
DECISION_LIMIT: Final = 1.0
"""A member that lost leadership still tells the fate of its proposals for so many seconds."""

CUT_DETAIL: Final = "the entry was cut from this member's log"

Append = Callable[[EntryKind, Sequence[Buffer], bool], tuple[LogIndex, Term]]
"""Makes an entry of payloads; the flag: some free space. Returns the entry's index and term."""


class Proposal:
    """One caller's payloads, kept together in one entry."""

    __slots__ = ("frees_space", "kind", "payloads", "rows", "settled", "size")

    def __init__(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        size: int,
        settled: OnSettled,
        *,
        frees_space: bool,
        rows: int,
    ) -> None:
        self.kind = kind
        self.frees_space = frees_space
        self.payloads = payloads
        self.rows = rows
        self.size = size
        self.settled = settled


def portions(sizes: Iterable[int], rows: Iterable[int] = repeat(0)) -> Iterator[slice]:
    """Cut payloads of these sizes into runs, each small enough for one proposal, in order.

    `rows`: how many rows apply reads for each payload, at most.
    """
    first = end = size = read = 0
    for each, reads in zip(sizes, rows, strict=False):
        if end > first and (
            size + each > PORTION_SIZE_TARGET
            or read + reads > ENTRY_ROWS_MAX
            or end - first >= ENTRY_PAYLOADS_MAX
        ):
            yield slice(first, end)
            first, size, read = end, 0, 0
        end += 1
        size += each
        read += reads
    if end > first:
        yield slice(first, end)


class Proposals:
    """Every proposal that is not settled."""

    def __init__(self) -> None:
        self._waiting: deque[Proposal] = deque()
        self.waiting_bytes = 0
        self._gathering = Gathering()
        self._proposed: dict[int, tuple[int, list[Proposal]]] = {}
        """By index of the entry: its term and its proposals, in the order of their payloads."""
        self._decide_by: float | None = None

    @property
    def undecided(self) -> int:
        """How many entries hold proposals that are not settled."""
        return len(self._proposed)

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        gathered = self._gathering.deadline
        if self._decide_by is None or not self._proposed:
            return gathered
        return min(gathered, self._decide_by)

    @property
    def expected_until(self) -> float:
        """When the next entry is cut at the latest, while callers are expected; else infinite."""
        return self._gathering.deadline

    @property
    def are_waiting(self) -> bool:
        """Tell whether a proposal waits for an entry."""
        return bool(self._waiting)

    def add(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
        rows: int = 0,
    ) -> None:
        """Queue a proposal that was admitted; one that fits no entry is refused.

        `rows`: how many rows apply reads for its payloads, at most.
        """
        size = 8 * len(payloads)
        for payload in payloads:
            size += len(payload)
        if not 1 <= len(payloads) <= ENTRY_PAYLOADS_MAX:
            refuse(
                settled,
                Code.INVALID_ARGUMENT,
                f"{len(payloads)} payloads in one proposal, must be in 1..{ENTRY_PAYLOADS_MAX}",
            )
        elif size + ENTRY_HEADER_SIZE > ENTRY_SIZE_MAX:
            refuse(
                settled,
                Code.MESSAGE_TOO_LARGE,
                f"proposal of {size} bytes, an entry holds {ENTRY_SIZE_MAX - ENTRY_HEADER_SIZE}",
            )
        else:
            self._waiting.append(
                Proposal(kind, payloads, size, settled, frees_space=frees_space, rows=rows)
            )
            self.waiting_bytes += size

    @property
    def are_gathered(self) -> bool:
        """Tell whether a small entry may be made, given that all before are committed."""
        return self._gathering.is_complete(len(self._waiting))

    def committed(self, index: int, now: float) -> None:
        """Every entry up to `index` is committed, while this member leads."""
        self._gathering.committed(index, len(self._waiting), now)

    def cut(self, append: Append, now: float, *, everything: bool) -> int:
        """Make entries of what waits; return how many.

        Without `everything`, only entries that are full: the rest gathers. Order is kept; an
        entry holds proposals of one kind.
        """
        entries = 0
        while self._waiting and (everything or self.waiting_bytes >= ENTRY_SIZE_TARGET):
            batch = self._next_entry()
            payloads: list[Buffer] = []
            for proposal in batch:
                payloads += proposal.payloads
            frees_space = any(proposal.frees_space for proposal in batch)
            try:
                index, term = append(batch[0].kind, payloads, frees_space)
            except Exception:
                # No entry was made: the proposals wait again, and the group's end settles them.
                self._waiting.extendleft(reversed(batch))
                self.waiting_bytes += sum(proposal.size for proposal in batch)
                raise
            self._gathering.cut(index, len(batch), len(payloads), now)
            replaced = self._proposed.pop(index, None)
            self._proposed[index] = (term, batch)
            if replaced is not None:
                # An earlier leader cut this entry from this log. Another member may hold it.
                _give_up(index, *replaced, CUT_DETAIL)
            entries += 1
        return entries

    def _next_entry(self) -> list[Proposal]:
        waiting = self._waiting
        batch = [waiting.popleft()]
        size = batch[0].size
        count = len(batch[0].payloads)
        rows = batch[0].rows
        while waiting and waiting[0].kind is batch[0].kind:
            size += waiting[0].size
            count += len(waiting[0].payloads)
            rows += waiting[0].rows
            if size > ENTRY_SIZE_TARGET or count > ENTRY_PAYLOADS_MAX or rows > ENTRY_ROWS_MAX:
                size -= waiting[0].size
                break
            batch.append(waiting.popleft())
        self.waiting_bytes -= size
        return batch

    # Decisions.

    def applied(self, index: LogIndex, term: int, results: Sequence[object]) -> None:
        """Settle what the committed entry at `index` decides."""
        held = self._proposed.pop(index, None)
        if held is None:
            return
        own_term, batch = held
        if own_term != term:
            for proposal in batch:
                proposal.settled(
                    Settled(
                        Outcome.NOT_STORED,
                        Code.NOT_LEADER,
                        f"entry {index} of term {own_term} was replaced by one of term {term}",
                        index=index,
                        term=Term(own_term),
                    )
                )
            return
        at = 0
        for proposal in batch:
            end = at + len(proposal.payloads)
            proposal.settled(
                Settled(
                    Outcome.STORED,
                    Code.OK,
                    index=index,
                    term=Term(term),
                    results=results[at:end],
                )
            )
            at = end

    def leadership_won(self, last_index: int) -> None:
        """Decide by apply alone again: as leader, this member learns the fate of its whole log.

        Entries that were cut behind its last one are given up: it will not hear of them (L7).
        """
        self._decide_by = None
        for index in [index for index in self._proposed if index > last_index]:
            _give_up(index, *self._proposed.pop(index), CUT_DETAIL)

    def leadership_lost(self, now: float, hint: str) -> None:
        """Refuse proposals without an entry, and set a time limit for the others."""
        self._gathering.forget()
        self.refuse_waiting(Code.NOT_LEADER, hint)
        self._decide_by = now + DECISION_LIMIT

    def tick(self, now: float) -> None:
        """Give up on what is undecided for too long."""
        self._gathering.tick(now)
        if self._decide_by is not None and now >= self._decide_by:
            self._decide_by = None
            self.give_up("this member lost leadership before the write was decided")

    def refuse_waiting(self, code: Code, detail: str) -> None:
        """Settle everything that no entry holds."""
        waiting, self._waiting = self._waiting, deque()
        self.waiting_bytes = 0
        for proposal in waiting:
            refuse(proposal.settled, code, detail)

    def give_up(self, detail: str) -> None:
        """Settle everything that an entry holds as unknown."""
        proposed, self._proposed = self._proposed, {}
        for index, (term, batch) in sorted(proposed.items()):
            _give_up(index, term, batch, detail)


def refuse(settled: OnSettled, code: Code, detail: str) -> None:
    """Settle as certainly not stored."""
    settled(Settled(Outcome.NOT_STORED, code, detail))


def _give_up(index: int, term: int, batch: Sequence[Proposal], detail: str) -> None:
    for proposal in batch:
        proposal.settled(
            Settled(
                Outcome.UNKNOWN,
                Code.UNKNOWN_OUTCOME,
                detail,
                index=LogIndex(index),
                term=Term(term),
            )
        )
