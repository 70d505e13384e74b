"""When a member says that it serves, and why not."""

from types import SimpleNamespace
from typing import cast

import pytest

from dledger.raft.api import Leadership, Role
from dledger.types import MemberId, Term
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics.readiness import Readiness
from tests.unit.broker.fakes import admission

ME, OTHER = MemberId("n1"), MemberId("n2")


class Group:
    """What readiness looks at."""

    def __init__(self, name: str = "g", last_index: int = 10, applied_index: int = 10) -> None:
        self.names = SimpleNamespace(group=name)
        self.log = SimpleNamespace(last_index=last_index)
        self.machine = SimpleNamespace(applied_index=applied_index)
        self.host = SimpleNamespace()
        self.become(Role.FOLLOWER, OTHER)

    def become(self, role: Role, leader: MemberId | None) -> None:
        self.host.leadership = Leadership(role, Term(3), leader)

    @property
    def view(self) -> GroupView:
        return cast("GroupView", self)


def followed(*groups: Group) -> Readiness:
    readiness = Readiness(admission())
    for group in groups:
        readiness.follow(group.view)
    return readiness


def test_a_member_that_follows_a_leader_and_has_applied_all_serves() -> None:
    assert not followed(Group()).not_ready()


def test_before_its_groups_are_open_it_does_not() -> None:
    assert followed().not_ready() == "the groups are being opened"


@pytest.mark.parametrize(
    ("role", "leader", "why"),
    [
        (Role.UNFORMED, None, "g: the member is unformed"),
        (Role.QUARANTINED, OTHER, "g: the member is quarantined"),
        (Role.CANDIDATE, None, "g: the member is candidate"),
        (Role.STOPPED, None, "g: the member is stopped"),
        (Role.FOLLOWER, None, "g: no leader is known in term 3"),
    ],
)
def test_other_roles(role: Role, leader: MemberId | None, why: str) -> None:
    group = Group()
    readiness = followed(group)
    group.become(role, leader)
    assert readiness.not_ready() == why
    group.become(Role.LEADER, ME)
    assert not readiness.not_ready()


def test_what_the_log_held_at_the_start_is_applied_first() -> None:
    group = Group(applied_index=4)
    readiness = followed(group)
    assert readiness.not_ready() == "g: applied up to entry 4 of 10"
    group.machine.applied_index = 10
    assert not readiness.not_ready()
    group.log.last_index = 1_000
    assert not readiness.not_ready(), "being a little behind is no reason later"


def test_an_end_that_a_new_leader_has_cut_is_not_waited_for() -> None:
    group = Group(applied_index=4)
    readiness = followed(group)
    group.log.last_index = group.machine.applied_index = 6
    assert not readiness.not_ready()


def test_every_group_counts() -> None:
    red, blue = Group("red"), Group("blue", applied_index=1)
    readiness = followed(red, blue)
    red.become(Role.FOLLOWER, None)
    assert readiness.not_ready() == (
        "red: no leader is known in term 3; blue: applied up to entry 1 of 10"
    )


def test_a_member_that_is_ending_does_not_serve() -> None:
    bounds = admission()
    readiness = Readiness(bounds)
    readiness.follow(Group().view)
    bounds.drain("it is ending")
    assert readiness.not_ready() == "the member is ending"
