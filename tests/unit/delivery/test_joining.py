"""What a Join may cost: patterns are bounded, and matching them gives way (S85)."""

import asyncio
from typing import Any

import pytest

from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import Subscribed
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_broker.delivery.joining import join_command
from dledger_broker.delivery.subscribed import NAMES_AT_ONCE, Subscription
from dledger_proto.errors import DledgerError
from dledger_proto.limits import PATTERNS_MAX
from dledger_proto.v1 import delivery_pb2 as pb
from tests.unit.state.consumer_kit import BILLING, DEAD, Billing
from tests.unit.state.kit import GROUP


def topic(number: int, name: str) -> Topic:
    return Topic(
        number.to_bytes(16, "big"), name, TopicType.NORMAL, 1, (LayoutPart(GROUP, 1),), 1, 1, 6,
        100 + number,
    )  # fmt: skip


async def joined(billing: Billing, *patterns: str) -> object:
    request = pb.Join(consumer_group="billing", member_id="c1")
    for pattern in patterns:
        request.subscriptions.add(topic=pattern, pattern=True)
    queries = billing.driven.machine.queries
    return await join_command(queries, request, BILLING, GroupSettings(GROUP, DEAD))


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ([f"orders{'|x' * at}" for at in range(PATTERNS_MAX + 1)], "17 patterns, at most 16"),
        (["orders|(.?){900}", "(.?){1500}"], "the patterns have over 4096 states together"),
        (["orders", "orders("], "a \\( without its \\)"),
        (["orders", "nothing.*"], "pattern 'nothing.\\*' matches none of 1 topics"),
    ],
)
def test_patterns_that_a_group_cannot_have_are_refused(patterns: list[str], problem: str) -> None:
    billing = Billing()
    before = billing.driven.rows()
    with pytest.raises(DledgerError, match=problem):
        asyncio.run(joined(billing, *patterns))
    assert billing.driven.rows() == before


async def beats_during(work: Any) -> int:
    """Return how often another task got its turn while something was awaited."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        await work
    except DledgerError:
        pass
    finally:
        task.cancel()
    return beats


def test_a_join_that_matches_many_names_lets_others_go_on() -> None:
    """Many names, and few names that each take many states (the loop serves everybody)."""
    many = Billing()
    for number in range(4 * NAMES_AT_ONCE):
        many.one(ImportTopic(topic(number, f"t{number}"), b"c" * 16))
    assert asyncio.run(beats_during(joined(many, "nothing.*"))) >= 5
    few = Billing()
    for number in range(16):
        few.one(ImportTopic(topic(number, f"{number:02}" + "ab" * 40), b"c" * 16))
    assert asyncio.run(beats_during(joined(few, "(.?.?.?){600}x"))) >= 16


def test_the_topics_of_a_pattern_are_found_with_breaks() -> None:
    found: dict[bytes, Topic] = {}
    topics = [topic(number, f"t{number}") for number in range(4 * NAMES_AT_ONCE)]

    async def find() -> None:
        subscription = Subscription([Subscribed("t\\d*5", pattern=True)])
        found.update(await subscription.topics(topics))

    assert asyncio.run(beats_during(find())) >= 4
    assert len(found) == sum(each.name.endswith("5") for each in topics)
