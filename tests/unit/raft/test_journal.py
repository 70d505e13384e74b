"""The journal as the core sees it: a lazy list, and the append rule."""

import pytest

from dledger.raft.engine.journal import PLACEHOLDER, InvariantBroken, Journal, Run, RunList
from dledger.types import EntryKind, LogIndex
from tests.unit.raft.harness import Member, World


@pytest.fixture
def leader() -> Member:
    world = World("a")
    member = world.elect("a")
    for number in range(5):
        member.put(b"%d" % number)
    world.run(0.1)
    return member


def journal_of(member: Member) -> Journal:
    return member.group._context.journal


def test_it_reads_like_a_list(leader: Member) -> None:
    journal = journal_of(leader)
    last, term = leader.log.last_index, leader.log.last_term
    assert len(journal) == last
    assert journal[-1] == (PLACEHOLDER, last, term)
    assert journal[0] == (PLACEHOLDER, 1, 0)
    assert journal[1] == (PLACEHOLDER, 2, term)
    assert [journal[2:4][place][1] for place in range(2)] == [3, 4]
    assert [journal[4:][place][1] for place in range(last - 4)] == list(range(5, last + 1))
    assert len(journal[last:]) == 0
    assert not journal[10**9 :]


def test_a_slice_looks_nothing_up_before_it_is_asked(
    leader: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L14: the core slices the rest of the log for every message."""
    asked: list[int] = []
    log = journal_of(leader)._log
    real = log.term_at

    def noted(_log: object, index: LogIndex) -> int | None:
        asked.append(index)
        return real(index)

    monkeypatch.setattr(type(log), "term_at", noted)
    view = journal_of(leader)[1:]
    assert len(view) == leader.log.last_index - 1
    assert asked == []
    assert view[0][1] == 2
    assert asked == [2]
    assert view[-1][1] == leader.log.last_index
    with pytest.raises(IndexError):
        _ = view[len(view)]


def test_a_run_is_one_entry_to_the_core() -> None:
    class Header:
        def __init__(self, index: int) -> None:
            self.index = index
            self.term = 3

    run = Run(memoryview(b""), [(Header(index), 0) for index in (4, 5, 6)])  # type: ignore[misc]
    entries = RunList(run)
    assert len(entries) == 1
    assert list(entries) == [(run, 6, 3)]
    assert entries[-1][1:] == (6, 3)
    assert (run.first, run.last, run.last_term) == (4, 6, 3)


def test_the_library_cannot_clear_or_compact(leader: Member) -> None:
    journal = journal_of(leader)
    with pytest.raises(InvariantBroken):
        journal.clear()
    with pytest.raises(InvariantBroken):
        journal.deleteEntriesTo(3)
    journal.deleteEntriesFrom(0)
    assert len(journal) == leader.log.last_index


def test_the_commit_index_never_goes_back(leader: Member) -> None:
    journal = journal_of(leader)
    commit = journal.commit_index
    journal.setRaftCommitIndex(commit)
    with pytest.raises(InvariantBroken):
        journal.setRaftCommitIndex(commit - 1)


def test_terms_never_go_back(leader: Member) -> None:
    with pytest.raises(AssertionError):
        journal_of(leader).setCurrentTerm(0, None)


class FakeLog:
    """Only terms: what `conflict_hint` looks at."""

    def __init__(self, terms: list[int]) -> None:
        self.terms = terms
        self.last_index = len(terms)
        self.first_index = 1
        self.is_empty = False

    def term_at(self, index: int) -> int | None:
        return self.terms[index - 1] if 1 <= index <= len(self.terms) else None


@pytest.mark.parametrize(
    ("terms", "commit", "asked", "hint"),
    [
        ([0, 1, 1, 1], 1, (9, 1), (4, 1)),  # shorter: the end
        ([0, 1, 1, 2, 2, 2], 1, (5, 1), (3, 1)),  # a whole foreign term is skipped
        ([0, 1, 1, 1, 1, 1], 1, (6, 5), (6, 1)),  # an older term here: as it is
        ([0, 3, 3, 3], 1, (4, 2), (1, 0)),
        ([0, 1, 1, 4, 4], 4, (5, 2), (4, 4)),  # never below the commit index
    ],
)
def test_the_back_off_hint_skips_a_term_at_a_time(
    terms: list[int], commit: int, asked: tuple[int, int], hint: tuple[int, int]
) -> None:
    journal = object.__new__(Journal)
    journal._log = FakeLog(terms)  # type: ignore[assignment]
    journal.commit_index = commit
    assert journal.conflict_hint(*asked) == hint


def test_new_entries_are_stamped_by_the_leaders_clock_but_never_backwards(leader: Member) -> None:
    journal = journal_of(leader)
    leader.world.now += 10
    ref = journal.append_new(EntryKind.COMMANDS, [b"x"], leader.group.term)
    assert ref.index == leader.log.last_index
    assert leader.log.last_time_ms == leader.clock.wall_ms()
    leader.clock.wall_offset_ms = -100_000
    journal.append_new(EntryKind.COMMANDS, [b"y"], leader.group.term)
    assert leader.log.last_time_ms == leader.clock.wall_ms() + 100_000
    assert leader.log.term_at(LogIndex(leader.log.last_index)) == leader.group.term
