"""Sessions of consumers over the whole product (D20, I19): join, death, silence, another leader.

Goal: a queue never has two holders, its epochs grow, after calm it has exactly one holder, and a
change of the leader moves nothing. Method: real members, hand-made consumers, the oracle of I19.
"""

import pytest

from dledger.state.consumers.settings import ConsumeOrder
from dledger_proto.errors import Code
from tests.scenarios.sessions import SESSION_MS, Sessions

SESSION = SESSION_MS / 1_000


def test_a_join_takes_queues_after_they_were_given_back() -> None:
    sessions = Sessions(consumers=2)
    first, second = sessions.clients
    sessions.start(first)
    assert len(sessions.grants.beliefs[first.member_id]) == sessions.queues
    sessions.start(second)
    assert len(sessions.grants.beliefs[second.member_id]) == sessions.queues // 2
    sessions.close()


def test_a_change_of_the_leader_moves_nothing() -> None:
    sessions = Sessions(consumers=3).start()
    before = sessions.grants.grants
    moved = [client.moved for client in sessions.clients]
    stage = sessions.stage
    for _ in range(3):
        stage.members[stage.leader].kill()
        stage.run_until(lambda: bool(stage.leader), 10, "another member leads")
        stage.run_for(3 * SESSION)
        for name in stage.names:
            stage.start_member(name)
        stage.run_for(0.5)
    assert sessions.grants.grants == before
    assert [client.moved for client in sessions.clients] == moved
    sessions.close()


def test_the_queues_of_a_killed_consumer_are_served_within_a_second() -> None:
    sessions = Sessions(consumers=2).start()
    sessions.clients[0].kill()
    assert sessions.settle() < 1
    sessions.close()


def test_a_silent_consumer_is_over_after_its_time_and_not_before() -> None:
    sessions = Sessions(consumers=2).start()
    silent, other = sessions.clients
    before = dict(sessions.grants.beliefs[other.member_id])
    silent.hold_still()
    sessions.stage.run_for(SESSION / 2)
    assert sessions.grants.beliefs[other.member_id] == before
    sessions.stage.run_until(
        lambda: len(sessions.grants.beliefs[other.member_id]) == sessions.queues,
        2 * SESSION,
        "the other one has all",
    )
    silent.hold_still(still=False)
    sessions.settle()
    sessions.close()


def test_who_comes_back_within_the_grace_keeps_its_queues() -> None:
    sessions = Sessions(consumers=2).start()
    before = sessions.grants.grants
    first = sessions.clients[0]
    first.kill()
    sessions.stage.run_for(0.2)
    first.start()
    sessions.settle()
    assert sessions.grants.grants == before
    sessions.close()


def test_who_leaves_is_not_waited_for() -> None:
    sessions = Sessions(consumers=2).start()
    sessions.clients[0].leave()
    sessions.stage.run_until(lambda: not sessions.clients[0].runs, 1, "the consumer left")
    assert sessions.settle() < 0.3
    sessions.close()


def test_a_static_consumer_may_be_away_for_its_session() -> None:
    sessions = Sessions(consumers=1)
    static = sessions.add("x", instance="one")
    sessions.start()
    before = sessions.grants.grants
    others = {key: grant for key, grant in before.items() if grant.holder != static.member_id}
    mine = before.keys() - others.keys()
    static.kill()
    sessions.stage.run_for(0.8 * SESSION)
    assert sessions.grants.grants == before
    static.start(anew=True)
    sessions.settle()
    after = sessions.grants.grants
    assert {key: after[key] for key in others} == others
    assert {key for key in after if after[key].holder == static.member_id} == mine
    sessions.close()


def test_another_subscription_is_refused() -> None:
    sessions = Sessions(consumers=1).start()
    other = sessions.add("x", topic="%RETRY%billing")
    other.start()
    sessions.stage.run_until(lambda: other.refused is not Code.OK, 5, "it is refused")
    assert other.refused is Code.SUBSCRIPTION_CONFLICT
    sessions.settle()
    sessions.close()


def test_another_order_of_the_group_ends_the_sessions() -> None:
    sessions = Sessions(consumers=2).start()
    sessions.decide(2_000, order=ConsumeOrder.QUEUE)
    sessions.stage.run_until(
        lambda: all(client.refused is Code.ORDER_CONFLICT for client in sessions.clients),
        5,
        "all are refused",
    )
    sessions.stage.run_until(lambda: not sessions.grants.grants, 5, "nobody has a queue")
    sessions.close()


def test_another_strategy_is_taken_up() -> None:
    sessions = Sessions(consumers=2).start()
    sessions.decide(2_000, strategy="average")
    sessions.settle()
    topic_id = sessions.stage.plan.topic_id
    held = {
        key.queue: grant.holder
        for key, grant in sessions.grants.grants.items()
        if key.topic_id == topic_id
    }
    names = sorted(client.member_id for client in sessions.clients)
    assert held == {0: names[0], 1: names[1]}
    sessions.close()


def test_the_end_of_a_session_that_is_decided_late_does_not_end_who_came_back() -> None:
    """The leader decides while it has no majority; the consumer comes back before it has one."""
    sessions = Sessions(consumers=2).start()
    stage, first = sessions.stage, sessions.clients[0]
    leader = stage.leader
    before = sessions.grants.grants
    for other in stage.names:
        if other != leader:
            stage.stop(leader, other)
    first.kill()
    stage.run_for(0.3)
    first.start()
    stage.run_for(0.3)
    stage.flow_all()
    sessions.settle()
    stage.run_for(2 * SESSION)
    sessions.settle()
    assert {key.queue for key in sessions.grants.grants} == {key.queue for key in before}
    sessions.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_storm(seed: int) -> None:
    """Members and consumers die, stand still and come back; links break. Then there is calm."""
    storm(seed)


def storm(seed: int) -> None:
    """Run one storm."""
    sessions = Sessions(seed=seed, consumers=4)
    static = sessions.add("x", instance="one")
    stage = sessions.stage
    random = stage.random
    sessions.start(*sessions.clients[:2])
    for _ in range(60):
        client = random.choice(sessions.clients)
        match random.randrange(8):
            case 0:
                client.kill()
            case 1 | 2:
                client.start(anew=client is static or random.random() < 0.3)
            case 3:
                client.hold_still(still=random.random() < 0.5)
            case 4 if stage.leader:
                stage.members[stage.leader].kill()
            case 5:
                stage.cut(*random.sample(stage.names, 2))
            case 6:
                stage.join()
            case _:
                for name in stage.names:
                    stage.start_member(name)
        stage.run_for(random.expovariate(2))
    stage.join()
    for name in stage.names:
        stage.start_member(name)
    for client in sessions.clients:
        client.hold_still(still=False)
        client.start()
    stage.run_for(2 * SESSION)  # who stood still before may be over just now
    sessions.settle()
    before = sessions.grants.grants
    stage.run_for(5 * SESSION)
    assert sessions.grants.grants == before
    sessions.close()
