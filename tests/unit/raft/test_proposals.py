"""Group commit and the fate of proposals, without a group."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.log.errors import LogFailed
from dledger.raft.commit.proposals import (
    DECISION_LIMIT,
    PORTION_SIZE_TARGET,
    Proposals,
    portions,
)
from dledger.types import Buffer, EntryKind, LogIndex, Settled, Term
from dledger_proto.errors import Code, Outcome
from dledger_proto.limits import (
    ENTRY_PAYLOADS_MAX,
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_MAX,
    ENTRY_SIZE_TARGET,
)

COMMANDS, BATCHES = EntryKind.COMMANDS, EntryKind.BATCHES


class Entries:
    """Takes entries as a leader's log would."""

    def __init__(self, term: int = 1, last: int = 10) -> None:
        self.term = term
        self.last = last
        self.made: list[tuple[EntryKind, list[Buffer]]] = []

    def append(
        self, kind: EntryKind, payloads: Sequence[Buffer], _frees_space: bool
    ) -> tuple[LogIndex, Term]:
        self.last += 1
        self.made.append((kind, list(payloads)))
        return LogIndex(self.last), Term(self.term)


def add(proposals: Proposals, *payloads: bytes, kind: EntryKind = COMMANDS) -> list[Settled]:
    settled: list[Settled] = []
    proposals.add(kind, payloads, settled.append)
    return settled


def test_what_waits_becomes_one_entry_in_order_and_results_go_to_their_owners() -> None:
    proposals, entries = Proposals(), Entries()
    one = add(proposals, b"a", b"b")
    two = add(proposals, b"c")
    assert proposals.cut(entries.append, 0.0, everything=True) == 1
    assert entries.made == [(COMMANDS, [b"a", b"b", b"c"])]
    assert proposals.waiting_bytes == 0
    proposals.applied(LogIndex(11), 1, ["A", "B", "C"])
    assert (one[0].outcome, list(one[0].results)) == (Outcome.STORED, ["A", "B"])
    assert (two[0].index, two[0].term, list(two[0].results)) == (11, 1, ["C"])
    assert proposals.undecided == 0


def test_a_log_that_failed_keeps_nobody_waiting() -> None:
    """No entry was made: what the entry was to hold is refused with the rest, in order."""
    proposals = Proposals()
    told: list[str] = []
    for name in ("one", "two"):
        proposals.add(COMMANDS, [b"x" * 10], lambda _, name=name: told.append(name))  # type: ignore[misc]
    settled = add(proposals, b"of another kind", kind=BATCHES)
    bytes_before = proposals.waiting_bytes

    def failing(
        _kind: EntryKind, _payloads: Sequence[Buffer], _frees_space: bool
    ) -> tuple[LogIndex, Term]:
        raise LogFailed(OSError(5, "EIO"))

    with pytest.raises(LogFailed):
        proposals.cut(failing, 0.0, everything=True)
    assert proposals.waiting_bytes == bytes_before
    proposals.refuse_waiting(Code.STORAGE_FAILED, "a write to the log failed")
    proposals.give_up("a write to the log failed")
    assert told == ["one", "two"]
    assert [(each.outcome, each.code) for each in settled] == [
        (Outcome.NOT_STORED, Code.STORAGE_FAILED)
    ]


def test_an_entry_holds_one_kind_and_order_is_kept() -> None:
    proposals, entries = Proposals(), Entries()
    for kind in (COMMANDS, COMMANDS, BATCHES, COMMANDS):
        add(proposals, b"x", kind=kind)
    assert proposals.cut(entries.append, 0.0, everything=True) == 3
    assert [(kind, len(payloads)) for kind, payloads in entries.made] == [
        (COMMANDS, 2), (BATCHES, 1), (COMMANDS, 1),
    ]  # fmt: skip


def test_while_a_round_is_in_flight_only_full_entries_are_made() -> None:
    proposals, entries = Proposals(), Entries()
    add(proposals, bytes(ENTRY_SIZE_TARGET // 2))
    assert proposals.cut(entries.append, 0.0, everything=False) == 0
    add(proposals, bytes(ENTRY_SIZE_TARGET // 2))
    add(proposals, b"rest")
    assert proposals.cut(entries.append, 0.0, everything=False) >= 1
    assert proposals.waiting_bytes < ENTRY_SIZE_TARGET


def test_sizes_and_counts_are_bounded() -> None:
    proposals, entries = Proposals(), Entries()
    for _ in range(2 * ENTRY_PAYLOADS_MAX + 1):
        add(proposals, b"x")
    assert proposals.cut(entries.append, 0.0, everything=True) == 3
    assert max(len(payloads) for _, payloads in entries.made) == ENTRY_PAYLOADS_MAX
    for _ in range(5):
        add(proposals, bytes(ENTRY_SIZE_TARGET // 2 - 100))
    entries.made.clear()
    assert proposals.cut(entries.append, 0.0, everything=True) == 3


def test_what_apply_reads_for_one_entry_is_bounded() -> None:
    proposals, entries = Proposals(), Entries()
    for _ in range(7):
        proposals.add(COMMANDS, [b"x"], lambda _: None, rows=ENTRY_ROWS_MAX // 3)
    assert proposals.cut(entries.append, 0.0, everything=True) == 3
    assert [len(payloads) for _, payloads in entries.made] == [3, 3, 1]


@given(st.lists(st.integers(0, PORTION_SIZE_TARGET + 9), max_size=50))
def test_portions_keep_order_and_are_as_large_as_they_may_be(sizes: list[int]) -> None:
    runs = [sizes[each] for each in portions(sizes)]
    assert [size for run in runs for size in run] == sizes
    assert all(len(run) == 1 or sum(run) <= PORTION_SIZE_TARGET for run in runs)
    assert all(sum(run) + after[0] > PORTION_SIZE_TARGET for run, after in itertools.pairwise(runs))


def test_a_portion_fits_an_entry_by_count() -> None:
    assert [run.stop - run.start for run in portions([1] * (ENTRY_PAYLOADS_MAX + 2))] == [
        ENTRY_PAYLOADS_MAX, 2,
    ]  # fmt: skip
    assert list(portions([])) == []


def test_what_apply_reads_for_a_portion_is_bounded() -> None:
    rows = [ENTRY_ROWS_MAX // 3] * 4 + [ENTRY_ROWS_MAX * 2, 1]
    assert [rows[run] for run in portions([1] * len(rows), rows)] == [
        rows[:3], rows[3:4], rows[4:5], rows[5:],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("payloads", "code"),
    [
        ([], Code.INVALID_ARGUMENT),
        ([b"x"] * (ENTRY_PAYLOADS_MAX + 1), Code.INVALID_ARGUMENT),
        ([bytes(ENTRY_SIZE_MAX)], Code.MESSAGE_TOO_LARGE),
    ],
)
def test_what_fits_no_entry_is_refused(payloads: list[bytes], code: Code) -> None:
    proposals = Proposals()
    settled = add(proposals, *payloads)
    assert [(each.outcome, each.code) for each in settled] == [(Outcome.NOT_STORED, code)]
    assert not proposals.are_waiting


def test_a_replaced_entry_is_certainly_not_stored() -> None:
    proposals, entries = Proposals(), Entries()
    settled = add(proposals, b"a")
    proposals.cut(entries.append, 0.0, everything=True)
    proposals.leadership_lost(5.0, "b")
    proposals.applied(LogIndex(11), 2, ["other"])
    assert (settled[0].outcome, settled[0].code) == (Outcome.NOT_STORED, Code.NOT_LEADER)
    assert settled[0].index == 11, "an entry had held it"


def test_what_waited_when_leadership_was_lost_was_in_no_log() -> None:
    proposals = Proposals()
    settled = add(proposals, b"a")
    proposals.leadership_lost(5.0, "b")
    assert (settled[0].code, settled[0].detail, settled[0].index) == (Code.NOT_LEADER, "b", 0)


def test_what_stays_undecided_is_unknown_after_a_while() -> None:
    proposals, entries = Proposals(), Entries()
    settled = add(proposals, b"a")
    proposals.cut(entries.append, 0.0, everything=True)
    assert proposals.next_deadline() == math.inf
    proposals.leadership_lost(5.0, "")
    assert proposals.next_deadline() == 5.0 + DECISION_LIMIT
    proposals.tick(5.0 + DECISION_LIMIT / 2)
    assert settled == []
    proposals.tick(5.0 + DECISION_LIMIT)
    assert (settled[0].outcome, settled[0].code) == (Outcome.UNKNOWN, Code.UNKNOWN_OUTCOME)
    proposals.applied(LogIndex(11), 1, ["A"])
    assert len(settled) == 1


def test_a_leader_again_decides_by_apply_alone() -> None:
    proposals, entries = Proposals(), Entries()
    settled = add(proposals, b"a")
    proposals.cut(entries.append, 0.0, everything=True)
    proposals.leadership_lost(5.0, "")
    proposals.leadership_won(entries.last)
    proposals.tick(1000.0)
    assert settled == []
    proposals.applied(LogIndex(11), 1, ["A"])
    assert settled[0].outcome is Outcome.STORED


def test_an_index_used_again_ends_the_older_proposal() -> None:
    """The entry was cut here, yet another member may hold it: nothing certain can be said."""
    proposals = Proposals()
    older = add(proposals, b"a")
    proposals.cut(Entries(term=1).append, 0.0, everything=True)
    proposals.leadership_lost(5.0, "")
    proposals.leadership_won(11)
    newer = add(proposals, b"b")
    proposals.cut(Entries(term=3).append, 0.0, everything=True)
    assert older[0].outcome is Outcome.UNKNOWN
    proposals.applied(LogIndex(11), 3, ["B"])
    assert newer[0].outcome is Outcome.STORED


STEPS = st.sampled_from(["add", "cut", "full", "apply", "lose", "win", "late"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), max_size=60))
def test_every_proposal_is_settled_once(steps: list[tuple[str, int]]) -> None:
    proposals, entries = Proposals(), Entries()
    everything: list[list[Settled]] = []
    applied, now = 10, 0.0
    for what, number in steps:
        if what == "add":
            everything.append(add(proposals, *[b"x"] * (number + 1)))
        elif what == "cut":
            proposals.cut(entries.append, 0.0, everything=True)
        elif what == "full":
            proposals.cut(entries.append, 0.0, everything=False)
        elif what == "apply" and applied < entries.last:
            applied += 1
            count = len(entries.made[applied - 11][1])
            proposals.applied(LogIndex(applied), number // 3 + 1, list(range(count)))
        elif what == "lose":
            proposals.leadership_lost(now, "")
        elif what == "win":
            proposals.leadership_won(entries.last)
        elif what == "late":
            now += DECISION_LIMIT
            proposals.tick(now)
        assert all(len(settled) <= 1 for settled in everything)
    proposals.refuse_waiting(Code.SHUTTING_DOWN, "")
    proposals.give_up("")
    assert all(len(settled) == 1 for settled in everything)


def test_what_was_cut_before_this_member_leads_again_is_unknown() -> None:
    """L7: no entry may ever come to its index here, so nothing else would end the wait."""
    proposals, entries = Proposals(), Entries()
    first = add(proposals, b"a")
    proposals.cut(entries.append, 0.0, everything=True)
    second = add(proposals, b"b")
    proposals.cut(entries.append, 0.0, everything=True)
    proposals.leadership_lost(5.0, "")
    proposals.leadership_won(11)
    assert second[0].outcome is Outcome.UNKNOWN
    assert (second[0].index, second[0].term) == (12, 1)
    assert first == []
    assert list(proposals._proposed) == [11]
