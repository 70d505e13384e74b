"""The whole producer core against a model of the cluster, under every fault the model knows.

Goal: whatever happens, a message that is reported stored lies at the offset that was reported,
one reported not stored lies nowhere, none lies twice, and messages bound to a queue lie in the
order in which they were handed over. One-way messages go between: they lie once or not at all.
"""

import random
from collections import Counter

import pytest

from dledger_client.config import ProducerConfig
from dledger_client.errors import NotStored, UnknownOutcome
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelCluster, ModelGroup, topic_id

SEEDS = 150
STEPS = 250
ONE_WAY_SHARE = 0.2


def make_cluster(
    seed: int, *, tells_last: bool = True, name: str = "", idempotent: bool = True
) -> ModelCluster:
    generator = random.Random(seed)
    config = ProducerConfig(
        name=name,
        timeout_ms=generator.choice([300, 3_000, 10_000, 10_000]),
        batch_records=generator.choice([1, 3, 50]),
        batches_in_flight=generator.choice([1, 2, 5, 256]),
        linger_ms=generator.choice([0, 5]),
        tries_max=generator.choice([0, 0, 4]),
        idempotent=idempotent,
    )
    groups = [
        ModelGroup(name, [f"{name}{i}" for i in range(3)], tells_last=tells_last)
        for name in ("a", "b")
    ]
    return ModelCluster(generator, config, groups, {"t": [("a", 2), ("b", 1)], "u": [("b", 2)]})


def step(cluster: ModelCluster, counter: int) -> int:
    generator = cluster.random
    kind = generator.choices(
        [
            "send",
            "open",
            "register",
            "serve",
            "answer",
            "time",
            "break",
            "float",
            "elect",
            "forget",
        ],
        [30, 10, 10, 25, 25, 10, 3, 6, 2, 0.3],
    )[0]
    match kind:
        case "send":
            for _ in range(generator.randint(1, 6)):
                topic = generator.choice(["t", "u"])
                queue = generator.choice([None, 0, 1])
                timeout = cluster.core.config.timeout_ms / 1_000
                one_way = generator.random() < ONE_WAY_SHARE
                cluster.send(topic, b"%d" % counter, queue, timeout, one_way=one_way)
                counter += 1
            cluster.turn()
        case "open":
            cluster.open_one()
        case "register":
            cluster.register_one()
        case "serve":
            cluster.serve_one()
        case "answer":
            cluster.answer_one()
        case "time":
            cluster.pass_time(generator.choice([0.001, 0.02, 0.3]))
        case "break":
            cluster.break_one()
        case "float":
            cluster.float_one()
        case "elect":
            cluster.elect()
        case _:
            cluster.forget_producer()
    return counter


def check(cluster: ModelCluster, *, in_order: bool = True) -> Counter[str]:
    """Compare what was reported with what lies in the logs; return how often each end occurred."""
    places: dict[bytes, list[tuple[str, bytes, int, int]]] = {}
    for group in cluster.groups.values():
        for (topic, queue), log in group.queues.items():
            for offset, body in enumerate(log):
                places.setdefault(body, []).append((group.name, topic, queue, offset))
    twice = {body: where for body, where in places.items() if len(where) > 1}
    assert not twice, f"stored twice: {twice}"
    ends: Counter[str] = Counter()
    order: dict[tuple[str, int], list[int]] = {}
    for sent in cluster.sent:
        assert sent.future.done(), f"{sent.body!r} has no outcome"
        where = places.pop(sent.body, [])
        if sent.one_way:
            assert sent.queue is None or not where or where[0][2] == sent.queue
            ends["one-way stored" if where else "one-way lost"] += 1
            continue
        error = sent.future.exception()
        if error is None:
            result = sent.future.result()
            assert where, f"{sent.body!r} was reported stored and is not"
            group_name, topic, queue, offset = where[0]
            assert (result.group, result.queue) == (group_name, queue)
            assert result.offset in (offset, -1)
            assert result.offset >= 0 or result.duplicate
            assert topic == topic_id(sent.topic)
            ends["stored, no offset" if result.offset < 0 else "stored"] += 1
        elif isinstance(error, UnknownOutcome):
            assert not error.definite
            ends["unknown"] += 1
        else:
            assert isinstance(error, NotStored), repr(error)
            assert not where, f"{sent.body!r} was reported {error} and lies at {where}"
            ends["not stored"] += 1
        if sent.queue is not None and where:
            assert where[0][2] == sent.queue, "a bound message lies elsewhere"
            order.setdefault((sent.topic, sent.queue), []).append(where[0][3])
    assert not places, f"stored and never sent: {places}"
    for key, offsets in order.items():
        assert not in_order or offsets == sorted(offsets), f"{key} out of order: {offsets}"
    return ends


def run(seed: int, *, tells_last: bool = True, name: str = "") -> Counter[str]:
    cluster = make_cluster(seed, tells_last=tells_last, name=name)
    if seed % 3:
        cluster.push_routes()
    counter = 0
    for _ in range(STEPS):
        counter = step(cluster, counter)
    cluster.finish()
    # Copies that were still on their way arrive now: they must not change anything that was told.
    while cluster.floating:
        cluster.float_one()
    return check(cluster)


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("tells_last", [True, False])
def test_reports_are_true(part: int, tells_last: bool) -> None:
    ends: Counter[str] = Counter()
    for seed in range(part, SEEDS, 10):
        try:
            ends += run(seed, tells_last=tells_last)
        except BaseException:
            print(f"seed {seed} tells_last {tells_last}")
            raise
    assert ends["stored"] > ends["not stored"] + ends["unknown"], ends


@pytest.mark.parametrize("seed", range(30))
def test_without_idempotence_nothing_lies_twice(seed: int) -> None:
    cluster = make_cluster(seed, idempotent=False)
    cluster.push_routes()
    counter = 0
    for _ in range(STEPS):
        counter = step(cluster, counter)
    cluster.finish()
    check(cluster, in_order=False)


def test_every_end_occurs() -> None:
    ends: Counter[str] = Counter()
    for seed in range(40):
        ends += run(seed)
    told = {"stored", "stored, no offset", "unknown", "not stored"}
    assert set(ends) == told | {"one-way stored", "one-way lost"}, ends


def two_groups(config: ProducerConfig) -> ModelCluster:
    groups = [ModelGroup(name, [f"{name}0"]) for name in ("a", "b")]
    cluster = ModelCluster(random.Random(1), config, groups, {"t": [("a", 2), ("b", 2)]})
    cluster.faults = False
    cluster.push_routes()
    return cluster


def test_slow_groups_are_avoided_for_a_while() -> None:
    """S36: an answer after 0.6 s bans a group for 2 s (5.x table); bound messages still go."""
    cluster = two_groups(ProducerConfig(avoid_slow_groups=True))
    slow = cluster.send("t", b"slow", 0)
    cluster.turn()
    cluster.open_one()
    cluster.register_one()
    cluster.pass_time(0.6)
    cluster.finish()
    assert slow.future.done()
    free = [cluster.send("t", b"%d" % i) for i in range(20)]
    bound = cluster.send("t", b"bound", 1)
    cluster.turn()
    cluster.finish()
    assert {sent.future.result().group for sent in free} == {"b"}
    assert bound.future.result().group == "a"
    cluster.pass_time(2.1)
    later = [cluster.send("t", b"later %d" % i) for i in range(20)]
    cluster.turn()
    cluster.finish()
    assert {sent.future.result().group for sent in later} == {"a", "b"}


def test_unsent_unbound_messages_leave_a_group_that_lost_its_leader() -> None:
    cluster = two_groups(ProducerConfig())
    free = [cluster.send("t", b"%d" % i) for i in range(20)]
    bound = cluster.send("t", b"bound", 0)
    lost = routes_pb2.RoutesReply(
        groups=[
            routes_pb2.GroupRoute(group="a", term=1, members=cluster.groups["a"].route().members)
        ]
    )
    cluster.core.routes_changed(cluster.core.routes.apply(lost), cluster.now)
    cluster.turn()
    for _ in range(5):
        cluster.open_one()
        cluster.register_one()
        cluster.serve_one()
        cluster.answer_one()
    on_b = [sent for sent in free if sent.future.done()]
    assert on_b
    cluster.finish()
    groups = Counter(sent.future.result().group for sent in free)
    assert groups["b"] == 20 - groups["a"]
    assert groups["b"] >= 15, "only a batch that holds a bound message stays"
    assert bound.future.result().group == "a"


def test_the_driver_is_not_asked_for_time_that_passed() -> None:
    cluster = two_groups(ProducerConfig())
    cluster.send("t", b"x")
    cluster.turn()
    for _ in range(200):
        deadline = cluster.core.next_deadline(cluster.now)
        assert deadline is None or deadline > cluster.now
        cluster.pass_time(0.01)
