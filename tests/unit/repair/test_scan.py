"""Flipped bits, lost bytes, lost files: a scan finds each, and names no more than it must."""

from random import Random

import pytest

from dledger.log.folder import IDENTITY_FILE
from dledger.log.hard_state import HARD_STATE_FILE, HardState
from dledger.repair.scan import Damage, Kind, scan_at
from dledger.repair.small_files import FILES, damaged_files
from dledger.types import LogIndex, Position, Term
from dledger_proto.entry import ENTRY_HEADER_SIZE, SEGMENT_HEADER_SIZE
from tests.unit.log.support import Member, check_holds
from tests.unit.repair.support import (
    content,
    damages,
    flip,
    log_files,
    meaningful,
    mend_all,
    pair,
)

FLIPS = 400


def place_of(member: Member, index: int) -> tuple[str, int]:
    """Return the file of an entry, and where in it the entry begins."""
    ref = member.log.ref(LogIndex(index))
    part = next(
        each
        for each in member.log.parts(member.log.last_index)
        if each.base <= ref.position < each.end
    )
    return part.path, SEGMENT_HEADER_SIZE + ref.position - part.base


def test_a_sound_log_has_no_damage_and_its_scan_tells_how_much_it_read() -> None:
    member, _, _ = pair()
    assert len(member.log.parts(member.log.last_index)) > 3
    assert not damages(member)
    member.reopen(close=True)
    assert not damages(member)


def test_each_flipped_bit_of_each_file_is_found_and_mended() -> None:
    """Nothing that was written is left out: headers, stamps, payloads, indexes."""
    member, peer, model = pair()
    random = Random(3)
    places = list(meaningful(member))
    before = {path: content(member.fs, path) for path, _ in places}
    kinds: set[Kind] = set()
    for _ in range(FLIPS):
        path, size = random.choice(places)
        offset, mask = random.randrange(size), 1 << random.randrange(8)
        flip(member.fs, path, offset, mask)
        found = damages(member)
        assert found, f"{path}+{offset} is not found"
        kinds |= {damage.kind for damage in found}
        assert mend_all(member, peer)
        after = content(member.fs, path)
        differ = [at for at in range(len(after)) if after[at] != before[path][at]]
        assert len(after) == len(before[path])
        assert len(differ) <= 12, "only the local stamp of one entry may differ"
        before[path] = after
    assert kinds == set(Kind)
    check_holds(member.log, model.entries)
    member.reopen(close=True)
    check_holds(member.log, model.entries)


def test_many_flipped_bits_at_once_are_mended() -> None:
    member, peer, model = pair()
    random = Random(4)
    places = list(meaningful(member))
    for _ in range(60):
        path, size = random.choice(places)
        flip(member.fs, path, random.randrange(size), 1 << random.randrange(8))
    assert mend_all(member, peer) > 10
    check_holds(member.log, model.entries)


@pytest.mark.parametrize("at", [0, 5, 8, 16, 24, 40, 48, ENTRY_HEADER_SIZE + 1])
def test_a_damaged_header_is_told_from_its_neighbours(at: int) -> None:
    member, _, _ = pair()
    index = next(n for n in range(5, 40) if place_of(member, n)[0] == place_of(member, n + 1)[0])
    path, offset = place_of(member, index)
    end = member.log.ref(LogIndex(index + 1)).position
    flip(member.fs, path, offset + at)
    found = [each for each in damages(member) if each.kind is not Kind.INDEX]
    assert [(each.first, each.last, each.end) for each in found] == [(index, index, end)]


def test_entries_beside_each_other_are_one_damage_when_their_headers_are_gone() -> None:
    member, peer, _ = pair()
    for index in (7, 8):
        path, offset = place_of(member, index)
        flip(member.fs, path, offset)
    runs = [(each.first, each.last) for each in damages(member) if each.kind is Kind.ENTRIES]
    assert runs in ([(7, 8)], [(7, 7), (8, 8)]), "one for each segment"
    mend_all(member, peer)


def test_a_file_that_ends_early_and_one_that_is_missing_are_mended() -> None:
    member, peer, model = pair()
    parts = member.log.parts(member.log.last_index)
    file = member.fs.open(parts[1].path)
    file.truncate(1_000)
    file.fdatasync()
    file.close()
    member.fs.unlink(parts[2].path)
    member.fs.unlink(parts[2].index_path)
    assert mend_all(member, peer) >= 4
    member.reopen(close=True)
    check_holds(member.log, model.entries)


def test_what_is_not_committed_is_not_looked_at() -> None:
    """It may still be cut: whoever has other entries there is right as well."""
    member, _, _ = pair()
    path, offset = place_of(member, 35)
    flip(member.fs, path, offset + 100)
    assert not damages(member, committed=34)
    (damage,) = [each for each in damages(member, committed=35) if each.kind is Kind.ENTRIES]
    assert damage.first == 35


@pytest.mark.parametrize("index", [1, 2, 7, 20, 41])
def test_a_look_at_a_place_finds_the_damage_there(index: int) -> None:
    member, _, _ = pair()
    path, offset = place_of(member, index)
    position = member.log.ref(LogIndex(index)).position + ENTRY_HEADER_SIZE + 20
    flip(member.fs, path, offset + ENTRY_HEADER_SIZE + 20)
    part = next(each for each in member.log.parts(LogIndex(41)) if each.path == path)
    found = [
        piece for piece in scan_at(member.fs, part, Position(position)) if isinstance(piece, Damage)
    ]
    assert [(each.first, each.last) for each in found] == [(index, index)]


def test_small_files_are_written_again_as_they_were() -> None:
    member, _, model = pair()
    member.sync(HardState(Term(3), "m2"))
    for name in FILES:
        path = f"{member.path}/{name}"
        before = content(member.fs, path)
        for offset in range(0, len(before), 3):
            flip(member.fs, path, offset)
            assert damaged_files(member.folder) == [name], f"{name}+{offset}"
            member.log.rewrite([name])
            member.sync()
            assert not damaged_files(member.folder)
            if name in (IDENTITY_FILE, HARD_STATE_FILE):
                assert content(member.fs, path) == before
    member.reopen(close=False)
    check_holds(member.log, model.entries)
    assert member.folder.load_hard_state() == HardState(Term(3), "m2")


def test_an_index_that_is_gone_is_made_again() -> None:
    member, peer, _ = pair()
    part = member.log.parts(member.log.last_index)[0]
    before = content(member.fs, part.index_path)
    member.fs.unlink(part.index_path)
    (damage,) = damages(member)
    assert damage.kind is Kind.INDEX
    assert damage.content == before
    mend_all(member, peer)
    assert content(member.fs, part.index_path) == before
    assert log_files(member)
