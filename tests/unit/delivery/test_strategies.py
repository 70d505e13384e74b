"""How queues are dealt out: RocketMQ's tables digit for digit (S90-S96), and sticky's promises."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.delivery.strategies.blocks import average, circle
from dledger_broker.delivery.strategies.choose import Plan, deal
from dledger_broker.delivery.strategies.given import config, overlaps_and_gaps
from dledger_broker.delivery.strategies.model import (
    Consumer,
    Dealt,
    Queue,
    Standing,
    owners,
)
from dledger_broker.delivery.strategies.ring import consistent_hash
from dledger_broker.delivery.strategies.rooms import machine_room, nearby_room
from dledger_broker.delivery.strategies.sticky import sticky
from dledger_proto.errors import DledgerError


def queues(count: int, group: str = "broker-a", topic: str = "TopicTest") -> list[Queue]:
    return [Queue(topic, group, number) for number in range(count)]


def consumers(count: int, room: str = "") -> list[Consumer]:
    return [Consumer(f"c{number}", room) for number in range(1, count + 1)]


def numbers(dealt: Dealt) -> list[list[int]]:
    """Return the numbers of the queues of c1, c2 and so on."""
    return [[queue.number for queue in dealt[name]] for name in sorted(dealt)]


class TestTables:
    @pytest.mark.parametrize(
        ("n", "c", "table"),
        [
            (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
            (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
            (8, 5, [[0, 1], [2, 3], [4, 5], [6], [7]]),
            (16, 5, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]]),
            (2, 3, [[0], [1], []]),
        ],
    )
    def test_average(self, n: int, c: int, table: list[list[int]]) -> None:
        """S91, and S90 where there are more consumers than queues."""
        assert numbers(average(queues(n), consumers(c))) == table

    @pytest.mark.parametrize(
        ("n", "c", "table"),
        [
            (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
            (8, 5, [[0, 5], [1, 6], [2, 7], [3], [4]]),
        ],
    )
    def test_circle(self, n: int, c: int, table: list[list[int]]) -> None:
        """S92."""
        assert numbers(circle(queues(n), consumers(c))) == table

    @pytest.mark.parametrize(
        ("n", "table"),
        [(8, [[0, 1, 6], [2, 3, 7], [4, 5]]), (5, [[0, 3], [1, 4], [2]])],
    )
    def test_machine_room(self, n: int, table: list[list[int]]) -> None:
        """S93: queues of other rooms, and of groups without a room, do not qualify."""
        others = queues(4, "B@broker-b") + queues(4, "broker-c")
        dealt = machine_room(queues(n, "A@broker-a") + others, consumers(3), ["A"])
        assert numbers(dealt) == table

    def test_machine_room_without_a_queue_that_qualifies(self) -> None:
        dealt = machine_room(queues(8), consumers(3), ["A", "broker-a"])
        assert numbers(dealt) == [[], [], []]

    def test_config(self) -> None:
        """S94."""
        some = queues(8)
        lists = (some[0:4], some[4:6], some[6:8])
        wanting = [
            Consumer(f"c{number}", "", tuple(wanted)) for number, wanted in enumerate(lists, 1)
        ]
        dealt = config(some, wanting)
        assert numbers(dealt) == [[0, 1, 2, 3], [4, 5], [6, 7]]
        assert overlaps_and_gaps(some, dealt) == []

    def test_config_warns_of_overlaps_and_gaps(self) -> None:
        some = queues(8)
        wanting = [Consumer("c1", "", tuple(some[:4])), Consumer("c2", "", tuple(some[3:7]))]
        plan = deal("config", some, [], wanting, {})
        assert plan.warnings == [
            "1 queues are wanted twice, the first consumer gets them: TopicTest/3 by c1 and c2",
            "1 queues are wanted by nobody: TopicTest/7",
        ]
        assert plan.targets[some[3]] == "c1"
        assert some[7] not in plan.targets

    def test_consistent_hash(self) -> None:
        """S95."""
        table = [[0, 4, 5, 7], [1, 6], [2, 3]]
        assert numbers(consistent_hash(queues(8), consumers(3))) == table
        table = [[2], [0, 3, 4, 7], [1, 5, 6]]
        assert numbers(consistent_hash(queues(8, "b", "T"), consumers(3))) == table

    @given(st.integers(1, 60), st.integers(1, 8))
    def test_consistent_hash_moves_only_to_a_new_consumer(self, n: int, c: int) -> None:
        before = owners(consistent_hash(queues(n), consumers(c)))
        after = owners(consistent_hash(queues(n), consumers(c + 1)))
        moved = {queue for queue in before if before[queue] != after[queue]}
        assert {after[queue] for queue in moved} <= {f"c{c + 1}"}

    def test_nearby_room(self) -> None:
        """S96."""
        near, far = queues(4, "A@a"), [Queue("TopicTest", "B@b", n) for n in range(4, 8)]
        apart = [*consumers(2, "A"), Consumer("c3", "B")]
        assert numbers(nearby_room(near + far, apart, average)) == [[0, 1], [2, 3], [4, 5, 6, 7]]
        together = nearby_room(near + far, consumers(3, "A"), average)
        assert numbers(together) == [[0, 1, 4, 5], [2, 6], [3, 7]]

    def test_nearby_room_refuses_what_has_no_room(self) -> None:
        with pytest.raises(DledgerError, match="consumer c1 names no room"):
            nearby_room(queues(4, "A@a"), consumers(2), average)
        with pytest.raises(DledgerError, match="broker group broker-a names no room"):
            nearby_room(queues(4), consumers(2, "A"), average)


class TestChoice:
    def test_the_order_of_arguments_does_not_matter(self) -> None:
        forwards = deal("average", queues(8), [], consumers(3), {})
        backwards = deal("average", queues(8)[::-1], [], consumers(3)[::-1], {})
        assert forwards == backwards

    def test_queues_are_sorted_by_topic_broker_group_and_number(self) -> None:
        some = [Queue("b", "g1", 0), Queue("a", "g2", 0), Queue("a", "g1", 1)]
        plan = deal("average", some, [], consumers(3), {})
        assert [plan.targets[queue] for queue in (some[2], some[1], some[0])] == ["c1", "c2", "c3"]

    def test_the_retry_topic_does_not_change_the_deal_of_the_others(self) -> None:
        retries = queues(2, topic="%RETRY%g")
        plan = deal("average", queues(8), retries, consumers(3), {})
        alone = deal("average", queues(8), [], consumers(3), {})
        assert {key: plan.targets[key] for key in alone.targets} == alone.targets
        assert {plan.targets[queue] for queue in retries} == {"c1", "c2"}

    def test_nobody_and_nothing(self) -> None:
        assert deal("average", queues(8), [], [], {}) == Plan({}, [])
        assert deal("sticky", [], [], consumers(2), {}) == Plan({}, [])

    def test_a_strategy_that_is_not_known(self) -> None:
        with pytest.raises(DledgerError, match="'dice': known are sticky, average, circle"):
            deal("dice", queues(1), [], consumers(1), {})

    @pytest.mark.parametrize("name", ["sticky", "average", "circle", "consistent-hash"])
    @given(st.integers(0, 40), st.integers(1, 9))
    def test_each_queue_has_exactly_one_consumer(self, name: str, n: int, c: int) -> None:
        plan = deal(name, queues(n), queues(n // 4, topic="%RETRY%g"), consumers(c), {})
        assert len(plan.targets) == n + n // 4
        assert set(plan.targets.values()) <= {consumer.name for consumer in consumers(c)}


STANDINGS = st.lists(
    st.one_of(st.none(), st.tuples(st.sampled_from("abcxy"), st.sampled_from("abcxy"))),
    max_size=6,
)


class TestSticky:
    @given(STANDINGS, st.integers(1, 3))
    def test_it_is_the_evenest_deal_that_moves_the_fewest(
        self, standings: list[tuple[str, str] | None], count: int
    ) -> None:
        some, everybody = queues(len(standings)), [Consumer(name) for name in "abc"[:count]]
        now = {
            queue: Standing(*standing)
            for queue, standing in zip(some, standings, strict=True)
            if standing is not None
        }
        dealt = owners(sticky(some, everybody, now))
        assert dealt.keys() == set(some)
        assert moves(dealt, now) == fewest_moves(some, [each.name for each in everybody], now)

    @given(STANDINGS, st.integers(1, 3), st.data())
    def test_a_deal_under_way_is_dealt_again(
        self, standings: list[tuple[str, str] | None], count: int, data: st.DataObject
    ) -> None:
        some, everybody = queues(len(standings)), [Consumer(name) for name in "abc"[:count]]
        now = {
            queue: Standing(*standing)
            for queue, standing in zip(some, standings, strict=True)
            if standing is not None
        }
        alive = {each.name for each in everybody}
        dealt = owners(sticky(some, everybody, now))
        for queue, target in dealt.items():
            before = now.get(queue)
            holder = target
            if before is not None and before.holder in alive and data.draw(st.booleans()):
                holder = before.holder
            now[queue] = Standing(holder, target)
        assert owners(sticky(some, everybody, now)) == dealt

    def test_a_join_takes_the_same_from_all(self) -> None:
        some = queues(900)
        now = {queue: Standing(f"c{1 + queue.number % 9}", "") for queue in some}
        dealt = sticky(some, consumers(10), now)
        assert {len(each) for each in dealt.values()} == {90}
        assert moves(owners(dealt), now) == 90


def moves(dealt: dict[Queue, str], now: dict[Queue, Standing]) -> int:
    return sum(queue not in now or now[queue].holder != name for queue, name in dealt.items())


def fewest_moves(some: list[Queue], names: list[str], now: dict[Queue, Standing]) -> int:
    """Return the fewest moves of any deal in which no two differ by more than one queue."""
    found = len(some)
    for way in product(names, repeat=len(some)):
        counts = [way.count(name) for name in names]
        if max(counts) - min(counts) <= 1:
            found = min(found, moves(dict(zip(some, way, strict=True)), now))
    return found
