"""Consumers and grants (D20): who may join, who has which queue, and that it is one at a time."""

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.state.commands.command import Command
from dledger.state.consumers.granting import Assign, GiveBack, Held, TopicTargets
from dledger.state.consumers.membership import EndSessions, Join, Session
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.consumers.table import QueueKey, Subscribed
from dledger.state.machine import StateMachine
from dledger.state.results import Assigned, GivenBack, Refused, SessionsEnded
from dledger.state.tables import Table
from dledger.state.topics.commands import ImportTopic
from dledger_offline.state import describe_row
from dledger_proto.errors import Code
from tests.unit.state.consumer_kit import (
    BILLING,
    DEAD,
    Billing,
    join,
    retry_topic,
)
from tests.unit.state.kit import GROUP, TOPIC, Driven, code_of


@pytest.fixture
def billing() -> Billing:
    return Billing()


def two(billing: Billing) -> None:
    """Let c1 have all queues, and two of them go to c2."""
    billing.join("c1")
    billing.assign("c1", "c1", "c1", "c1")
    billing.join("c2")
    billing.assign("c1", "c1", "c2", "c2")


class TestGrants:
    def test_a_queue_that_nobody_has_is_granted_at_once(self, billing: Billing) -> None:
        billing.join("c1")
        assert billing.assign("c1", "c1", "", "c1") == Assigned(granted=3, revoked=0)
        assert billing.holders() == ["c1", "c1", "-", "c1"]
        assert billing.grant(0).epoch == len(billing.driven.log.entries)

    def test_a_queue_of_another_consumer_is_granted_when_it_is_given_back(
        self, billing: Billing
    ) -> None:
        two(billing)
        assert billing.holders() == ["c1", "c1", "c1>c2", "c1>c2"]
        assert billing.give_back("c1", 2) == GivenBack(1)
        assert billing.holders() == ["c1", "c1", "c2", "c1>c2"]

    def test_what_does_not_move_keeps_its_epoch(self, billing: Billing) -> None:
        two(billing)
        before = billing.grant(0)
        billing.give_back("c1", 2, 3)
        billing.assign("c1", "c1", "c2", "c2")
        assert billing.grant(0) == before

    def test_a_later_grant_has_a_higher_epoch(self, billing: Billing) -> None:
        two(billing)
        before = billing.grant(2).epoch
        billing.give_back("c1", 2)
        assert billing.grant(2).epoch == len(billing.driven.log.entries) > before

    def test_what_was_aimed_back_and_comes_all_the_same_is_granted_anew(
        self, billing: Billing
    ) -> None:
        two(billing)
        late = billing.giving_back("c1", 3)
        billing.assign("c1", "c1", "c2", "c1")
        before = billing.grant(3).epoch
        assert billing.one(late) == GivenBack(1)
        assert billing.holders()[3] == "c1"
        assert billing.grant(3).epoch > before

    def test_nobody_gives_back_what_another_has(self, billing: Billing) -> None:
        two(billing)
        held = Held(TOPIC, 0, billing.grant(0).epoch)
        joined = billing.rows.consumers["c2"].joined
        assert billing.one(GiveBack(BILLING, "c2", joined, (held,))) == GivenBack(0)
        assert billing.holders()[0] == "c1"

    def test_an_assignment_that_names_a_stranger_is_refused(self, billing: Billing) -> None:
        billing.join("c1")
        assert code_of(billing.assign("c1", "c9")) is Code.INVALID_ARGUMENT
        wrong = Assign(BILLING, 1, ("c1",), (TopicTargets(TOPIC, (2,)),))
        assert code_of(billing.one(wrong)) is Code.INVALID_ARGUMENT

    def test_only_what_changes_is_written(self, billing: Billing) -> None:
        two(billing)
        before = billing.driven.rows()
        billing.assign("c1", "c1", "c2", "c2")
        after = billing.driven.rows()
        changed = {key[0] for key in after if after[key] != before.get(key)}
        assert changed <= {0}, "the applied index alone"

    def test_queues_that_nobody_subscribes_to_any_more_have_no_row_when_they_are_back(
        self, billing: Billing
    ) -> None:
        billing.join("c1")
        billing.assign("c1", "c1", "c1", "c1")
        billing.assign("c1")
        assert billing.holders() == ["c1", "c1>", "c1>", "c1>"]
        billing.give_back("c1", 1, 2, 3)
        assert billing.holders() == ["c1", "-", "-", "-"]


class TestSessions:
    def test_the_queues_of_a_consumer_that_is_gone_are_free(self, billing: Billing) -> None:
        two(billing)
        assert billing.end("c1") == SessionsEnded(("c1",))
        assert billing.holders() == ["-", "-", "c2", "c2"]
        assert billing.rows.epochs.group == 3

    def test_who_comes_back_moves_nothing(self, billing: Billing) -> None:
        two(billing)
        before = billing.rows.epochs
        billing.join("c1")
        assert billing.rows.epochs == before
        assert billing.holders() == ["c1", "c1", "c1>c2", "c1>c2"]

    def test_a_consumer_is_told_by_its_epoch_that_something_changed(self, billing: Billing) -> None:
        two(billing)
        asked = billing.rows.consumers["c1"].epoch
        assert asked == len(billing.driven.log.entries)
        assert billing.rows.consumers["c2"].epoch == 0
        billing.give_back("c1", 2)
        assert billing.rows.consumers["c2"].epoch == len(billing.driven.log.entries)

    def test_give_back_of_a_consumer_without_a_session(self, billing: Billing) -> None:
        assert code_of(billing.one(GiveBack(BILLING, "c1", 0, ()))) is Code.SESSION_ENDED


class TestStatic:
    def test_a_static_consumer_takes_over_the_place_of_its_last_life(
        self, billing: Billing
    ) -> None:
        billing.join("c1", "one")
        billing.join("c2", "two")
        billing.assign("c1", "c1", "c2", "c2")
        before, epochs = billing.grant(2), billing.rows.epochs
        assert billing.join("c1b", "one").replaced == "c1"
        assert billing.holders() == ["c1b", "c1b", "c2", "c2"]
        assert billing.grant(2) == before
        assert billing.rows.epochs == replace(epochs, granted=billing.grant(0).epoch)
        assert "c1" not in billing.rows.consumers
        assert billing.grant(0).epoch == len(billing.driven.log.entries)

    def test_what_the_last_life_had_to_give_back_goes_to_its_target(self, billing: Billing) -> None:
        billing.join("c1", "one")
        billing.assign("c1", "c1", "c1", "c1")
        billing.join("c2", "two")
        billing.assign("c1", "c1", "c2", "c2")
        billing.join("c1b", "one")
        assert billing.holders() == ["c1b", "c1b", "c2", "c2"]

    def test_what_was_to_come_to_the_last_life_comes(self, billing: Billing) -> None:
        billing.join("c1", "one")
        billing.assign("c1", "c1", "c1", "c1")
        billing.join("c2", "two")
        billing.assign("c1", "c1", "c2", "c2")
        billing.join("c2b", "two")
        assert billing.holders() == ["c1", "c1", "c1>c2b", "c1>c2b"]

    def test_the_end_of_the_last_life_comes_too_late(self, billing: Billing) -> None:
        billing.join("c1", "one")
        billing.assign("c1", "c1", "c1", "c1")
        late = billing.end_command("c1")
        billing.join("c1b", "one")
        assert billing.one(late) == SessionsEnded(())
        assert billing.holders() == ["c1b"] * 4

    def test_two_consumers_that_become_one_are_dealt_anew(self, billing: Billing) -> None:
        billing.join("c1", "one")
        billing.join("c2")
        billing.assign("c1", "c1", "c2", "c2")
        assert billing.join("c2", "one").replaced == "c1"
        assert list(billing.rows.consumers) == ["c2"]
        assert billing.rows.epochs.group == 3
        assert billing.holders() == ["c2"] * 4


class TestRefusals:
    def test_differing_subscriptions_are_refused_naming_both(self, billing: Billing) -> None:
        billing.join("c1")
        other = (Subscribed("pay.*", pattern=True),)
        result = billing.one(join("c2", subscriptions=other))
        assert result == Refused(
            Code.SUBSCRIPTION_CONFLICT,
            "consumer c2 subscribes to /pay.*/; consumer c1 to orders",
        )
        strategy = billing.one(join("c2", strategy="average"))
        assert code_of(strategy) is Code.SUBSCRIPTION_CONFLICT

    def test_the_only_consumer_may_change_its_subscription(self, billing: Billing) -> None:
        billing.join("c1")
        billing.one(join("c1", subscriptions=(Subscribed("payments"),)))
        assert billing.rows.epochs.subscriptions == (Subscribed("payments"),)
        assert billing.rows.epochs.group == 2

    def test_another_order_than_the_groups_is_refused(self, billing: Billing) -> None:
        result = billing.one(join("c1", order=ConsumeOrder.KEY))
        assert code_of(result) is Code.ORDER_CONFLICT

    def test_too_many_consumers(self, billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dledger.state.consumers.membership.CONSUMERS_PER_GROUP_MAX", 2)
        billing.join("c1")
        billing.join("c2", "two")
        assert code_of(billing.one(join("c3"))) is Code.TOO_MANY_CONSUMERS
        billing.join("c2b", "two")
        billing.join("c1")

    @pytest.mark.parametrize(
        "command",
        [
            join(""),
            join("c" * 256),
            join("é" * 128),
            join("c\n"),
            join("c1", subscriptions=()),
            join("c1", subscriptions=(Subscribed("b"), Subscribed("a"))),
            join("c1", subscriptions=(Subscribed("a"), Subscribed("a"))),
            join("c1", subscriptions=(Subscribed("a" * 128),)),
            join("c1", subscriptions=tuple(Subscribed(f"{n:03}") for n in range(65))),
            join("c1", strategy="dice"),
        ],
    )
    def test_fields_outside_their_limits(self, billing: Billing, command: Join) -> None:
        assert code_of(billing.one(command)) is Code.INVALID_ARGUMENT
        assert not billing.rows.consumers

    def test_a_name_that_another_goes_by(self, billing: Billing) -> None:
        billing.join("c1", "one")
        assert code_of(billing.one(join("one"))) is Code.INVALID_ARGUMENT

    def test_a_group_that_is_not_there_or_not_here(self) -> None:
        driven = Driven()
        assert code_of(driven.one(join("c1"))) is Code.CONSUMER_GROUP_NOT_FOUND
        driven.one(ImportTopic(retry_topic(GroupSettings("g2", DEAD)), b"c" * 16))
        assert code_of(driven.one(join("c1"))) is Code.WRONG_GROUP
        for command in (EndSessions(BILLING, (Session("c", 1),)), Assign(BILLING, 0, (), ())):
            assert code_of(driven.one(command)) is Code.WRONG_GROUP

    def test_too_many_queues(self, billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dledger.state.consumers.granting.QUEUES_PER_CONSUMER_GROUP_MAX", 3)
        billing.join("c1")
        assert code_of(billing.assign("c1", "c1", "c1", "c1")) is Code.INVALID_ARGUMENT
        assert billing.holders() == ["-"] * 4


def test_the_deletion_of_a_group_frees_its_rows(billing: Billing) -> None:
    two(billing)
    billing.one(ImportTopic(retry_topic(control_index=9, deleted=True), b"c" * 16))
    assert code_of(billing.one(join("c1"))) is Code.CONSUMER_GROUP_NOT_FOUND
    billing.driven.idle(20)
    assert not [key for key in billing.driven.rows() if key[0] in (0x42, 0x43, 0x44)]
    assert not billing.rows.consumers


def test_ten_consumers_of_nine_hundred_queues_are_one_small_command(billing: Billing) -> None:
    names = tuple(f"c{number}" for number in range(10))
    for name in names:
        billing.join(name)
    rows = tuple(
        TopicTargets(bytes((topic,)) * 16, tuple(1 + queue % 10 for queue in range(100)))
        for topic in range(9)
    )
    assert billing.one(Assign(BILLING, 10, names, rows)) == Assigned(900, 0)


def test_rows_are_shown_in_words(billing: Billing) -> None:
    two(billing)
    shown = [
        describe_row(Table(key[0]), key, value)
        for key, value in billing.driven.rows().items()
        if key[0] in (Table.CONSUMER, Table.GRANT, Table.GROUP_EPOCHS)
    ]
    assert not any(row.problem for row in shown)
    group, topic = BILLING.hex(), TOPIC.hex()
    assert [(row.table, row.key) for row in shown] == [
        *(("consumer", f"{group} {name}") for name in ("c1", "c2")),
        *(("grant", f"{group} {topic}/{queue}") for queue in range(4)),
        ("group-epochs", group),
    ]
    assert dict(shown[4].value) == {
        "target": "c2", "holder": "c1", "epoch": "4", "since_ms": "1000",
    }  # fmt: skip
    assert shown[-1].value["subscriptions"] == "orders"


def test_a_restart_finds_everything(billing: Billing) -> None:
    two(billing)
    billing.give_back("c1", 2)
    before = deepcopy(billing.rows)
    machine = StateMachine(billing.driven.store, GROUP)
    assert machine.queries.consumers(BILLING) == before
    assert machine.queries.topic_by_id(BILLING) == retry_topic()
    assert machine.queries.joined_groups() == [BILLING]


NAMES = ("c1", "c2", "c3")
STEPS = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(NAMES), st.sampled_from(["", "one", "two"])),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("assign"), st.lists(st.sampled_from((*NAMES, "")), max_size=4)),
    st.tuples(st.just("give"), st.sampled_from(NAMES), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("restart")),
)


@given(st.lists(st.lists(STEPS, min_size=1, max_size=3), max_size=25))
def test_whatever_happens_a_queue_has_one_holder_and_its_epochs_grow(
    entries: list[list[tuple[object, ...]]],
) -> None:
    billing = Billing()
    epochs: dict[int, int] = {}
    past: list[Command[object]] = []
    for steps in entries:
        if steps[0][0] == "restart":
            billing.driven.machine = StateMachine(billing.driven.store, GROUP)
            continue
        commands = [found for step in steps if (found := command_of(billing, step, past))]
        before = dict(billing.rows.grants)
        if commands:
            past += commands
            billing.run(*commands)
        may_lose = {each.consumer for each in commands if isinstance(each, GiveBack)}
        for each in commands:
            if isinstance(each, EndSessions):
                may_lose |= {session.consumer for session in each.sessions}
            if isinstance(each, Join) and each.instance:
                may_lose |= set(NAMES)
        for key, grant in billing.rows.grants.items():
            assert grant.holder in billing.rows.consumers
            assert not grant.target or grant.target in billing.rows.consumers
            old = before.get(key)
            if old is not None and old.epoch == grant.epoch:
                assert old.holder == grant.holder
            else:
                assert grant.epoch > epochs.get(key.queue, 0)
                assert old is None or old.holder in may_lose
            epochs[key.queue] = grant.epoch


def command_of(
    billing: Billing, step: tuple[object, ...], past: list[Command[object]]
) -> Command[object] | None:
    """Return the command of a step; now and then one that was sent before."""
    match step:
        case "join", str(name), str(instance):
            return join(name, instance)
        case "end", str(name), bool(is_late):
            late = [each for each in past if isinstance(each, EndSessions)]
            if is_late and late:
                return late[-1]
            return billing.end_command(name) if name in billing.rows.consumers else None
        case "assign", [*targets]:
            return billing.assignment(*map(str, targets))
        case "give", str(name), int(queue), bool(is_late):
            given = [each for each in past if isinstance(each, GiveBack)]
            if is_late and given:
                return given[-1]
            known = QueueKey(TOPIC, queue) in billing.rows.grants
            return billing.giving_back(name, queue) if known else None
        case _:
            return None
