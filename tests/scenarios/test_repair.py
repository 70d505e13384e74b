"""Damage in the log of members that run: peers mend it, and nobody sees it (I15)."""

from typing import Any
from unittest.mock import patch

import pytest

from dledger.raft.api import Role
from dledger.repair.findings import Scrubbed
from dledger.types import EntryRef
from dledger_broker.repair import scrub
from dledger_broker.repair.fetching import fetch
from tests.scenarios.stage import Stage
from tests.sim.member.member import SimMember

SEGMENT = 16 << 10
SCRUB_MS = 1_000


def _written(scrub_ms: int = 0) -> Stage:
    """Return a group that a leads, with some segments, and nothing of them in memory."""
    stage = Stage("abc", segment_size=SEGMENT, tail_cache_bytes=0, scrub_ms=scrub_ms).formed()
    for number in range(60):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.01)
    stage.settle()
    return stage


def _ref(stage: Stage, name: str, index: int) -> EntryRef:
    return stage.group.facts.members[name].log[index]


def _damage(stage: Stage, name: str, index: int, at: int = 200) -> EntryRef:
    """Flip a bit of an entry, so many bytes behind its beginning."""
    member, ref = stage.members[name], _ref(stage, name, index)
    place = member.view.place(ref)
    assert place is not None
    member.flip(place[0], place[1] + at)
    member.damaged = f"entry {index}"
    assert not member.view.holds(ref)
    return ref


def _mended(stage: Stage, name: str, ref: EntryRef) -> bool:
    member = stage.members[name]
    if not member.view.holds(ref):
        return False
    member.note_mended()
    return True


def _says(member: SimMember) -> str:
    assert member.process is not None
    return member.process.runtime.view.findings.says


def _scrub(stage: Stage, name: str, bytes_per_second: int = 0) -> None:
    process = stage.members[name].process
    assert process is not None
    member = stage.members[name]
    member.input(lambda: process.runtime.view.scrub_now(bytes_per_second))


@pytest.mark.parametrize("at", [0, 16, 40, 57, 72, 400], ids=str)
def test_a_scrub_mends_what_nobody_has_read(at: int) -> None:
    """Of a leader as of a follower; a damaged header and stamp as a damaged payload."""
    stage = _written(scrub_ms=SCRUB_MS)
    for name, index in (("a", 10), ("c", 40)):
        member, ref = stage.members[name], _ref(stage, name, index)
        place = member.view.place(ref)
        assert place is not None
        member.flip(place[0], place[1] + at)
        member.damaged = f"entry {index}"
    stage.run_until(
        lambda: all(member.process is not None and not _flips(member) for member in _all(stage)),
        10.0,
        "both are mended",
    )
    assert stage.leads("a")
    stage.finish()


def _all(stage: Stage) -> list[SimMember]:
    return list(stage.members.values())


def _flips(member: SimMember) -> bool:
    member.note_mended()
    return bool(member.flips)


def test_two_members_with_damage_in_neighbouring_entries_mend_each_other() -> None:
    stage = _written(scrub_ms=SCRUB_MS)
    stage.members["b"].kill()
    refs = {name: _damage(stage, name, index, at=16) for name, index in (("a", 20), ("c", 21))}
    stage.run_until(
        lambda: all(_mended(stage, name, ref) for name, ref in refs.items()),
        10.0,
        "both are mended",
    )
    stage.start_member("b")
    stage.finish()


def test_the_same_damage_on_all_members_is_said_and_not_served() -> None:
    """Nobody can mend it, and nobody pretends to."""
    stage = _written(scrub_ms=SCRUB_MS)
    refs = {name: _damage(stage, name, 20) for name in "abc"}
    stage.run_until(
        lambda: all("entry 20" in _says(member) for member in _all(stage)), 10.0, "all say so"
    )
    assert "no peer has it whole" in _says(stage.members["a"])
    assert stage.put("a", "after").outcome is None
    stage.settle()
    assert stage.puts[-1].stored, "the group goes on"
    for name, ref in refs.items():
        member = stage.members[name]
        (path, offset, byte), *_ = member.flips
        assert not member.view.holds(ref)
        if name == "b":  # as if its disk had found the old byte again
            member.fs.flip(path, offset, 1)
            assert member.fs.byte_at(path, offset) != byte
    stage.run_until(
        lambda: all(_mended(stage, name, ref) for name, ref in refs.items()), 10.0, "all are mended"
    )
    stage.run_until(lambda: not any(map(_says, _all(stage))), 10.0, "and say nothing any more")
    stage.finish()


def test_apply_waits_for_the_entry_that_it_cannot_read() -> None:
    """A member that starts again reads entries that its state does not cover yet."""
    stage = _written()
    stage.members["c"].break_store(full=True)
    for number in range(10):
        stage.put("a", f"w{number}", 1_000)
        stage.run_for(0.02)
    stage.run_for(2.0)  # the log is idle: its checkpoint covers everything
    member = stage.members["c"]
    process = member.process
    assert process is not None
    saved = int(process.machine.saved_index)
    last = int(process.log.last_index)
    assert saved < last - 3
    member.kill()
    member.mend_store()
    ref = _damage(stage, "c", last - 2)
    stage.start_member("c")
    stage.run_until(lambda: _mended(stage, "c", ref), 10.0, "it is mended")
    stage.run_until(
        lambda: member.process is not None and int(member.process.machine.applied_index) >= last,
        5.0,
        "and applied",
    )
    assert not stage.counts["damage found"]
    stage.finish()


def test_a_leader_with_a_damaged_header_fills_a_late_member_once_it_is_mended() -> None:
    """It looks the place of an entry up among headers, on its own thread."""
    stage = Stage("abc", segment_size=SEGMENT, tail_cache_bytes=0).formed()
    stage.isolate("c")
    for number in range(60):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.01)
    ref = _damage(stage, "a", 10, at=16)
    stage.join()
    stage.run_until(lambda: _mended(stage, "a", ref), 10.0, "b mends it")
    assert stage.leads("a")
    stage.run_until(lambda: stage.log_end("c") == stage.log_end("a"), 10.0, "c has everything")
    stage.finish()


def test_damage_of_what_nobody_has_committed_ends_the_leader() -> None:
    """No peer can vouch for an entry that may still be cut, so none mends it."""
    stage = _written()
    for peer in "bc":
        stage.stop("a", peer)
    put = stage.put("a", "mine", 1_000)
    stage.run_for(0.05)
    last, _ = stage.log_end("a")
    assert put.outcome is None
    _damage(stage, "a", last)
    stage.flow_all(deliver=False)
    stage.cut("a", "b")
    stage.join()
    stage.run_until(lambda: stage.counts["damage found"] == 1, 10.0, "the leader ends")
    stage.run_until(lambda: bool(stage.leader), 10.0, "another one leads")
    assert stage.log_end(stage.leader)[0] >= last - 1
    stage.finish()


def test_a_member_that_is_alone_ends_as_before() -> None:
    stage = Stage("a", segment_size=SEGMENT, tail_cache_bytes=0).formed()
    for number in range(40):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.01)
    stage.settle()
    ref = _damage(stage, "a", 10)
    _scrub(stage, "a")
    stage.run_for(1.0)
    member = stage.members["a"]
    assert "this member is alone" in _says(member)
    assert member.role is Role.LEADER
    assert not member.view.holds(ref)


def _look_at(stage: Stage, name: str, position: int) -> None:
    member = stage.members[name]
    process = member.process
    assert process is not None
    member.input(lambda: process.runtime.view.look_at(position))


def test_members_with_the_same_damage_do_not_wake_each_other_without_end() -> None:
    stage = _written()
    refs = {name: _damage(stage, name, 20) for name in "abc"}
    asked: list[object] = []

    def counted(*of: Any) -> Any:
        asked.append(of)
        return fetch(*of)

    with patch.object(scrub, "fetch", counted):
        for name, ref in refs.items():
            _look_at(stage, name, ref.position)
        stage.run_until(lambda: all(map(_says, _all(stage))), 10.0, "all say so")
        before = len(asked)
        for _ in range(200):
            for name, ref in refs.items():
                _look_at(stage, name, ref.position)
            stage.run_for(0.1)
    tries = 20.0 / scrub.AGAIN_SECONDS
    assert len(asked) - before <= 6 * (tries + 1), "each of three asks two peers"


def test_what_is_left_is_tried_again_while_a_slow_scrub_is_under_way() -> None:
    stage = _written()
    stage.isolate("b")
    left = _damage(stage, "b", 10)
    _look_at(stage, "b", left.position)
    stage.run_until(lambda: bool(_says(stage.members["b"])), 60.0, "nobody can be asked")
    _scrub(stage, "b", 1)
    stage.run_for(1.0)
    stage.join()
    stage.run_until(lambda: _mended(stage, "b", left), 60.0, "a peer is there again")
    met = _damage(stage, "b", 30)
    _look_at(stage, "b", met.position)
    stage.run_until(lambda: _mended(stage, "b", met), 5.0, "a read met it")
    _scrub(stage, "b", 0)
    stage.run_until(lambda: _scrubbed(stage, "b").ended_ms > 0, 5.0, "another one is asked for")
    stage.finish()


def _scrubbed(stage: Stage, name: str) -> Scrubbed:
    process = stage.members[name].process
    assert process is not None
    return process.runtime.view.findings.scrub


def test_a_leader_that_cannot_apply_hands_over() -> None:
    stage = _written()
    member = stage.members["a"]
    process = member.process
    assert process is not None
    group = process.host.group

    def wait() -> None:
        group._applying.waits_for_mending = True

    with patch.object(scrub.Scrub, "_go_on", lambda _: None):
        member.input(wait)
        stage.put("a", "not applied there")
        _look_at(stage, "a", _ref(stage, "a", 20).position)
        stage.run_until(lambda: stage.leader not in ("", "a"), 30.0, "another one leads")
    member.input(process.host.log_mended)
    stage.finish()
