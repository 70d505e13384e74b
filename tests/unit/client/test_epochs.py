"""Registering: what a life asks for, what it makes of the answers, and who is fenced (D11).

Goal: a producer alone is never fenced, whatever becomes of its registrations; of two lives the one
that came later goes on, the other ends with ProducerFenced, and neither is told stored what is not.
"""

import random

import pytest

from dledger_client._core.producer.epoch import Epoch
from dledger_client.config import ProducerConfig
from dledger_client.errors import ProducerFenced, error_of
from dledger_proto.errors import Code
from tests.unit.client.model_cluster import PRODUCER_ID, ModelCluster, ModelGroup

LATER_LIFE = b"L" * 16
TOPICS = {"t": [("a", 1)]}


def group_a() -> ModelGroup:
    return ModelGroup("a", ["a0"])


def life(group: ModelGroup, life_id: bytes = b"l" * 16) -> ModelCluster:
    """Return a life of the producer `name`; nothing goes wrong by itself."""
    config = ProducerConfig(name="name", timeout_ms=600_000)
    cluster = ModelCluster(random.Random(1), config, [group], TOPICS, life_id)
    cluster.faults = False
    cluster.push_routes()
    return cluster


def asked(cluster: ModelCluster) -> tuple[int, int]:
    """Go on until a registration is on its way, take it out; return its epoch and number."""
    for _ in range(100):
        cluster.turn()
        cluster.open_one()
        if cluster.registrations:
            _, wanted, ask = cluster.registrations.pop()
            return wanted, ask
        assert cluster.jump(), "no registration is asked for"
    raise AssertionError("no registration is asked for")


def stored(cluster: ModelCluster, body: bytes) -> bool:
    """Send a message and go on to the end; return whether it is stored, and not as a repeat."""
    sent = cluster.send("t", body, 0)
    cluster.turn()
    cluster.finish()
    if sent.future.exception() is not None:
        assert isinstance(sent.future.exception(), ProducerFenced)
        return False
    return not sent.future.result().duplicate


def test_a_life_takes_over_and_fences_the_one_before() -> None:
    group = group_a()
    older, later = life(group), life(group, LATER_LIFE)
    assert stored(older, b"1")
    assert stored(later, b"2")
    assert not stored(older, b"3"), "ProducerFenced"
    assert stored(later, b"4")
    assert [*group.queues.values()] == [[b"1", b"2", b"4"]]


def test_who_was_granted_an_epoch_does_not_take_over_any_more() -> None:
    """Also when it learns of the other life by registering: it came first."""
    group = group_a()
    older, later = life(group), life(group, LATER_LIFE)
    assert stored(older, b"1")
    older.core.senders["a"].epoch.invalidate()
    assert stored(later, b"2")
    assert not stored(older, b"3")
    assert stored(later, b"4")


def test_who_is_told_stale_is_fenced_unless_it_was_only_about_to_take_over() -> None:
    generator = random.Random(1)
    held = Epoch()
    held.grant(5)
    assert held.stale(0.0, generator)
    assert Epoch().stale(0.0, generator), "its own name was taken over since it first asked"
    late = Epoch()
    late.taken(5, 0.0)
    assert not late.stale(0.0, generator)
    assert late.wanted == 0, "it looks again whom it follows"


def test_a_first_registration_that_comes_late_fences_no_other_life() -> None:
    """The older one's was lost on its way, and comes when the later one writes."""
    group = group_a()
    older, later = life(group), life(group, LATER_LIFE)
    older.send("t", b"1", 0)
    wanted, _ = asked(older)
    assert stored(later, b"2")
    group.register(PRODUCER_ID, wanted, older.life_id)
    assert stored(later, b"3")


def test_copies_of_its_own_registrations_do_not_fence_a_producer() -> None:
    group = group_a()
    cluster = life(group)
    copies: list[int] = []
    for turn in range(4):
        cluster.send("t", b"%d" % turn, 0)
        for _ in range(2):
            wanted, ask = asked(cluster)
            copies.append(wanted)
            if turn % 2:
                group.register(PRODUCER_ID, wanted, cluster.life_id)
            cluster.core.register_failed(
                "a", ask, error_of(Code.UNKNOWN_OUTCOME, "lost"), cluster.now
            )
        cluster.finish()
        for late in copies:
            group.register(PRODUCER_ID, late, cluster.life_id)
        cluster.core.senders["a"].epoch.invalidate()
    assert [*group.queues.values()] == [[b"0", b"1", b"2", b"3"]]


def test_a_lost_answer_to_a_takeover_is_asked_for_again() -> None:
    group = group_a()
    assert stored(life(group), b"1")
    later = life(group, LATER_LIFE)
    later.send("t", b"2", 0)
    _, ask = asked(later)
    later.core.register_taken("a", ask, 1, later.now)
    wanted, ask = asked(later)
    assert wanted == 2
    assert group.register(PRODUCER_ID, wanted, LATER_LIFE) is not None
    later.core.register_failed("a", ask, error_of(Code.UNKNOWN_OUTCOME, "lost"), later.now)
    later.finish()
    assert [*group.queues.values()] == [[b"1", b"2"]]


def test_who_comes_too_late_to_follow_one_life_follows_the_next() -> None:
    """Two start at once: both are told of the same life, and both go on in turn."""
    group = group_a()
    assert stored(life(group), b"1")
    second, third = life(group, b"2" * 16), life(group, b"3" * 16)
    second.send("t", b"2", 0)
    _, ask = asked(second)
    assert stored(third, b"3")
    second.core.register_taken("a", ask, 1, second.now)
    second.finish()
    assert [*group.queues.values()] == [[b"1", b"3", b"2"]]
    assert not stored(third, b"4")


def test_who_took_over_without_knowing_and_was_fenced_ends() -> None:
    """Its takeover was carried out, the answer lost; the next life followed it."""
    group = group_a()
    assert stored(life(group), b"1")
    second, third = life(group, b"2" * 16), life(group, b"3" * 16)
    sent = second.send("t", b"2", 0)
    _, ask = asked(second)
    second.core.register_taken("a", ask, 1, second.now)
    wanted, ask = asked(second)
    assert group.register(PRODUCER_ID, wanted, second.life_id) is not None
    second.core.register_failed("a", ask, error_of(Code.UNKNOWN_OUTCOME, "lost"), second.now)
    assert stored(third, b"3")
    second.finish()
    assert isinstance(sent.future.exception(), ProducerFenced)


@pytest.mark.parametrize("number", [2, 9])
def test_only_the_next_epoch_follows(number: int) -> None:
    """What is told of the epoch before concerns our batches only if that was ours."""
    epoch = Epoch()
    assert epoch.wanted == 0
    assert not epoch.grant(1), "the first one follows none of ours"
    assert epoch.wanted == 2
    assert epoch.grant(number) is (number == 2)
