"""Ids that never repeat (S117), and the selectors of S38."""

import random
from collections import Counter

import pytest

from dledger_client import Message, TopicQueue, by_groups, by_hash, by_random
from dledger_client._core.ids import ID_SIZE, NUMBER_MAX, first_number, named_producer_id
from dledger_proto.keyhash import queue_of_key

QUEUES = [
    TopicQueue("t", queue, group, group != "dead")
    for queue, group in enumerate(["near", "near", "far", "dead", "far"])
]
MESSAGE = Message(b"")


def test_named_producers_keep_their_id_and_never_reuse_a_number() -> None:
    assert named_producer_id("c", "n") == named_producer_id("c", "n")
    ids = {named_producer_id(c, n) for c, n in (("c", "n"), ("c", "m"), ("d", "n"), ("cn", ""))}
    assert len(ids) == 4
    assert {len(identifier) for identifier in ids} == {ID_SIZE}
    assert first_number(named=False, wall_ms=1_700_000_000_000) == 0
    first_life = first_number(named=True, wall_ms=1_700_000_000_000)
    next_life = first_number(named=True, wall_ms=1_700_000_000_001)
    assert next_life - first_life > 1_000_000, "a million records in one millisecond"
    assert next_life < NUMBER_MAX
    with pytest.raises(ValueError, match="wall clock"):
        first_number(named=True, wall_ms=-1)


def test_hash_is_stable_over_the_whole_layout() -> None:
    for key in ("a", b"a", 17):
        text = key if isinstance(key, bytes) else str(key).encode()
        assert by_hash(QUEUES, MESSAGE, key) == queue_of_key(text, 5)
    assert by_hash(QUEUES, MESSAGE, "a") == by_hash(QUEUES, MESSAGE, b"a")


def test_random_leaves_dead_groups_out() -> None:
    select = by_random(random.Random(1))
    drawn = Counter(select(QUEUES, MESSAGE, None) for _ in range(400))
    assert {queue.queue for queue in drawn if isinstance(queue, TopicQueue)} == {0, 1, 2, 4}
    dead = [queue for queue in QUEUES if not queue.has_leader]
    assert select(dead, MESSAGE, None) == dead[0], "all dead: any"


def test_groups_of_a_machine_room() -> None:
    select = by_groups(["near"], random.Random(1))
    assert {select(QUEUES, MESSAGE, None) for _ in range(50)} == set(QUEUES[:2])
    elsewhere = by_groups(["dead"], random.Random(1))
    drawn = {elsewhere(QUEUES, MESSAGE, None) for _ in range(100)}
    assert drawn == {queue for queue in QUEUES if queue.has_leader}
    with pytest.raises(ValueError, match="names"):
        by_groups([], random.Random(1))
