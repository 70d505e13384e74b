"""Formation and quarantine decisions alone: each row of the table, no two formations at once."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.membership.formation import (
    Forming,
    decide,
    genesis_of,
    group_id_of,
    met_by,
    recorded_by,
)  # fmt: skip
from dledger.raft.wire.messages import Hello
from dledger.types import MemberId
from tests.unit.raft.harness import hello_of

MEMBERS = [MemberId(name) for name in "abc"]


def life(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


LIVES = {name: life(name + "1") for name in "abc"}
GENESIS = genesis_of("c", "g", LIVES)
GROUP_ID = group_id_of("c", "g", LIVES)


def empty(name: str, met: dict[str, bytes] | None = None) -> Hello:
    return hello_of(LIVES[name], met=LIVES if met is None else met)


def formed(name: str, recorded: bytes, genesis: bytes = GENESIS) -> Hello:
    return hello_of(LIVES[name], group_id=GROUP_ID, recorded=recorded, genesis=genesis)


def decided(
    views: dict[str, Hello], incarnation: bytes = LIVES["a"], group: str = "g"
) -> tuple[Forming, str]:
    decision = decide(
        cluster="c",
        group=group,
        member=MEMBERS[0],
        incarnation=incarnation,
        members=MEMBERS,
        views={MemberId(name): view for name, view in views.items()},
    )
    return decision.step, decision.reason


def test_row_a_another_group_is_refused() -> None:
    step, reason = decided({"b": formed("b", LIVES["a"])}, group="other")
    assert step is Forming.WAIT
    assert "belongs to group g" in reason


def test_a_restored_group_keeps_the_first_entry_of_the_old_cluster() -> None:
    lives = {**LIVES, "a": life("older")}
    genesis = genesis_of("old", "g", lives)
    restored = hello_of(
        LIVES["b"], group_id=group_id_of("old", "g", lives), recorded=life("older"), genesis=genesis
    )
    step, reason = decided({"b": restored})
    assert (step, reason) == (Forming.QUARANTINE, "")


def test_row_a_another_member_list_is_refused() -> None:
    genesis = genesis_of("c", "g", {**LIVES, "d": life("d1")})
    view = hello_of(
        LIVES["b"], group_id=group_id_of("c", "g", {**LIVES, "d": life("d1")}), genesis=genesis
    )
    step, reason = decided({"b": view})
    assert step is Forming.WAIT
    assert "has the members a, b, c, d" in reason


def test_row_a_a_peer_without_its_first_entry_cannot_help() -> None:
    step, reason = decided({"b": formed("b", LIVES["a"], genesis=b"")})
    assert step is Forming.WAIT
    assert reason == "b: has data, but its log lacks entry 1"


def test_row_a_a_first_entry_that_cannot_be_read_is_refused() -> None:
    step, reason = decided({"b": formed("b", LIVES["a"], genesis=b"x"), "c": formed("c", b"")})
    assert step is Forming.WAIT
    assert reason.startswith("b tells a first entry that cannot be read")


def test_a_peer_that_has_not_told_its_first_entry_holds_up_nobody() -> None:
    """It may stop for good before it does."""
    views = {"b": formed("b", life("a2"), genesis=b""), "c": formed("c", life("a2"))}
    assert decided(views)[0] is Forming.QUARANTINE
    assert (
        decided({**views, "b": formed("b", b"", genesis=b"")}, LIVES["a"])[0] is Forming.QUARANTINE
    )


def test_who_might_adopt_waits_for_every_first_entry() -> None:
    """A peer that trimmed it knows that this life had data, and has lost it."""
    views = {"b": formed("b", LIVES["a"], genesis=b""), "c": formed("c", LIVES["a"])}
    step, reason = decided(views)
    assert step is Forming.WAIT
    assert reason == "b: has data, but has not sent entry 1 yet"
    assert decided({**views, "b": formed("b", LIVES["a"])})[0] is Forming.ADOPT


def test_row_a_a_peer_that_contradicts_itself_is_refused() -> None:
    view = formed("b", LIVES["a"])
    view.group_id = bytes(15) + b"x"
    assert decided({"b": view})[0] is Forming.WAIT


def test_row_b_two_groups() -> None:
    lives = {**LIVES, "c": life("c2")}
    other = hello_of(
        life("c2"), group_id=group_id_of("c", "g", lives), genesis=genesis_of("c", "g", lives)
    )
    step, reason = decided({"b": formed("b", LIVES["a"]), "c": other})
    assert step is Forming.WAIT
    assert "different groups" in reason


def test_row_c_who_never_promised_anything_adopts() -> None:
    assert decided({"b": formed("b", LIVES["a"])})[0] is Forming.ADOPT


def test_row_c_a_peer_that_knows_nothing_of_it_does_not_matter() -> None:
    """It may have lost its own disk meanwhile; quarantining both would leave no majority."""
    assert decided({"b": formed("b", LIVES["a"]), "c": formed("c", b"")})[0] is Forming.ADOPT


def test_row_d_another_incarnation_is_quarantined() -> None:
    assert decided({"b": formed("b", LIVES["a"])}, life("a2"))[0] is Forming.QUARANTINE


def test_row_d_an_incarnation_that_was_followed_by_another_is_quarantined() -> None:
    """The first entry lists it, but the peer has a later life on record."""
    assert decided({"b": formed("b", life("a2"))})[0] is Forming.QUARANTINE


def test_row_e_all_have_met_all() -> None:
    assert decided({"b": empty("b"), "c": empty("c")})[0] is Forming.FORM


def test_row_f_somebody_is_missing() -> None:
    step, reason = decided({"b": empty("b")})
    assert step is Forming.WAIT
    assert "once this member has met c" in reason


@pytest.mark.parametrize("met", [{}, {"a": life("a1"), "b": life("b1")}, {**LIVES, "c": life("x")}])
def test_row_f_somebody_has_met_others_than_i(met: dict[str, bytes]) -> None:
    step, reason = decided({"b": empty("b", met), "c": empty("c")})
    assert step is Forming.WAIT
    assert reason.startswith("b has not met")


def test_everybody_derives_the_same_first_entry() -> None:
    lists = [dict(order) for order in permutations(LIVES.items())]
    assert len({genesis_of("c", "g", lives) for lives in lists}) == 1
    assert group_id_of("c", "h", LIVES) != GROUP_ID
    assert group_id_of("c", "g", {**LIVES, "c": life("c2")}) != GROUP_ID


class Empty:
    """A member without data that only meets others."""

    def __init__(self, name: str, number: int) -> None:
        self.name = MemberId(name)
        self.incarnation = life(f"{name}{number}")
        self.views: dict[MemberId, Hello] = {}
        self.genesis = b""

    def hears(self, other: "Empty") -> None:
        met = met_by(other.name, other.incarnation, other.views)
        lives = {} if not other.genesis else {"recorded": b""}
        view = hello_of(other.incarnation, met={} if other.genesis else met)
        if other.genesis:
            view.genesis = other.genesis
            view.group_id = other.genesis[10:26]
            view.recorded = self.incarnation if self.incarnation in other.genesis else b""
        del lives
        self.views[other.name] = view
        if not self.genesis:
            decision = decide(
                cluster="c", group="g", member=self.name, incarnation=self.incarnation,
                members=MEMBERS, views=self.views,
            )  # fmt: skip
            self.genesis = decision.genesis


@given(st.lists(st.tuples(st.sampled_from("abcw"), st.sampled_from("abc")), max_size=60))
def test_no_two_groups_form_whoever_meets_whom_and_is_wiped(steps: list[tuple[str, str]]) -> None:
    """Members meet in any order and lose their empty disks at any time: at most one group lives."""
    members = {name: Empty(name, 1) for name in "abc"}
    number = 1
    ever: set[bytes] = set()
    for one, other in steps:
        if one == "w":
            number += 1
            members[other] = Empty(other, number)
        elif one != other:
            members[one].hears(members[other])
        alive = {member.genesis for member in members.values() if member.genesis}
        ever |= alive
        assert len(alive) <= 1, steps


def test_recorded_by_names_who_is_missing_and_the_highest_term() -> None:
    peers = [MemberId("b"), MemberId("c")]
    b = hello_of(LIVES["b"], group_id=GROUP_ID, recorded=life("a2"), term=7)
    c = hello_of(LIVES["c"], group_id=GROUP_ID, recorded=life("a1"), term=9)
    views = {MemberId("b"): b, MemberId("c"): c}
    found = recorded_by(incarnation=life("a2"), group_id=GROUP_ID, peers=peers, views=views)
    assert (found.missing, found.term) == (["c"], 7)
    c.recorded = life("a2")
    found = recorded_by(incarnation=life("a2"), group_id=GROUP_ID, peers=peers, views=views)
    assert (found.missing, found.term) == ([], 9)
    c.group_id = b""
    found = recorded_by(incarnation=life("a2"), group_id=GROUP_ID, peers=peers, views=views)
    assert found.missing == ["c"]
