"""The key index: lookups against brute force through levels, merges, trims and restarts (S52)."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.state.lookup import key_index
from dledger.state.lookup.entries import KeyPlace, entries_of, place_of, sort, split
from dledger.state.lookup.runs import Directory, Merge, Run, decode_directory, encode_directory
from dledger.state.queues.trim import Trim
from dledger.state.tables import PREFIX, Table
from dledger.state.topics.commands import DeleteTopic
from dledger.state.values import KeyHit
from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import key_hash
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, create, offset_of, started


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs, so that hundreds of keys make several levels."""
    for name, value in (
        ("LEVEL_0_ENTRIES", 32), ("MERGE_PACE", 16), ("MERGE_STEP", 20), ("RUNS_PER_MERGE", 4),
        ("ENTRIES_PER_BLOCK", 5), ("LEVEL_0_BLOCK_SIZE", 200),
    ):  # fmt: skip
        monkeypatch.setattr(key_index, name, value)


def keyed(keys: list[list[str]], queue: int = 0, topic: bytes = TOPIC) -> bytes:
    """Return a batch with a record for each list of keys."""
    return encode_batch(
        [Record(b"", keys=tuple(each)) for each in keys],
        topic_id=topic, queue=queue, stamp=None, base_number=0, base_time_ms=1,
    )  # fmt: skip


@dataclass
class World:
    """A machine, and every batch with its keys, oldest first."""

    driven: Driven = field(default_factory=started)
    stored: list[tuple[set[str], KeyHit]] = field(default_factory=list)

    def append(self, *batches: tuple[list[list[str]], int], time_ms: int | None = None) -> None:
        payloads = [keyed(keys, queue) for keys, queue in batches]
        results = self.driven.append(*payloads, time_ms=time_ms)
        entry = self.driven.log.entries[-1]
        for (keys, queue), result in zip(batches, results, strict=True):
            span = self.driven.machine.queries.lookup_offset(TOPIC, queue, offset_of(result))
            assert span.store_time_ms == entry.time_ms
            self.stored.append(({key for each in keys for key in each}, KeyHit(queue, span)))

    def restart(self) -> None:
        self.driven.save()
        self.driven = Driven(self.driven.store, self.driven.log)

    def check(self, key: str, begin_ms: int = 0, end_ms: int = 0, limit: int = 1000) -> None:
        minimums = [self.driven.machine.queries.queue_bounds(TOPIC, queue)[0] for queue in range(4)]
        every = [
            hit
            for keys, hit in reversed(self.stored)
            if key in keys
            and hit.span.base_offset + hit.span.record_count > minimums[hit.queue]
            and begin_ms <= hit.span.store_time_ms <= (end_ms or 10**15)
        ]
        hashed = key_hash(key.encode())
        found = self.driven.machine.queries.lookup_key(TOPIC, hashed, begin_ms, end_ms, limit)
        assert found.hits == every[:limit], key
        # And so on from there, in pages, to the end.
        hits, up_to = found.hits, found.next_position
        while up_to is not None:
            page = self.driven.machine.queries.lookup_key(
                TOPIC, hashed, begin_ms, end_ms, limit, up_to
            )
            assert page.next_position is None or page.next_position < up_to
            hits, up_to = hits + page.hits, page.next_position
        assert hits == every, key


def random_batch(random: Random) -> tuple[list[list[str]], int]:
    """Return keys that come once, some that come often, and records without any."""
    keys = [
        [f"k{random.randrange(400)}" for _ in range(random.randrange(3))]
        + (["hot"] if random.random() < 0.2 else [])
        for _ in range(random.randint(1, 4))
    ]
    return keys, random.randrange(4)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
def test_lookups_equal_brute_force(seed: int) -> None:
    """At every stage of merging, with trims and restarts in between."""
    world, random = World(), Random(seed)
    for step in range(400):
        count = random.randint(1, 3)
        time_ms = world.driven.log.time_ms + random.randrange(3)
        world.append(*(random_batch(random) for _ in range(count)), time_ms=time_ms)
        match random.randrange(40):
            case 0:
                world.restart()
            case 1:
                world.driven.save()
            case 2:
                queue = random.randrange(4)
                low, high = world.driven.machine.queries.queue_bounds(TOPIC, queue)
                world.driven.one(Trim(TOPIC, queue, (2 * low + high) // 3))
            case _:
                pass
        for _ in range(3):
            world.check(f"k{random.randrange(400)}")
        if step % 10 == 0:
            world.check("hot")
            world.check("hot", limit=3)
            world.check("never")
            now = world.driven.log.time_ms
            begin = random.randint(900, now)
            world.check("hot", begin, random.randint(begin, now))
            world.check(f"k{random.randrange(400)}", begin, now)


def runs_of(driven: Driven) -> Directory:
    return decode_directory(driven.rows()[PREFIX[Table.KEY_DIRECTORY] + TOPIC])


@pytest.mark.usefixtures("small")
def test_runs_stay_few() -> None:
    """A lookup seeks in every run, so their number must grow with the logarithm of the keys."""
    world = World()
    seen = 0
    for step in range(1500):
        world.append(([[f"a{step}", f"b{step}"]], 0))
        if step % 16 == 0 and step:
            directory = runs_of(world.driven)
            levels: dict[int, int] = {}
            for run in directory.runs:
                levels[run.level] = levels.get(run.level, 0) + 1
            assert max(levels.values()) <= 2 * 4, levels
            assert len(directory.merges) == len({merge.level for merge in directory.merges})
            seen = max(seen, *levels)
    assert seen >= 3, "the test reached several levels"
    for step in (0, 1, 700, 1499):
        world.check(f"b{step}")
    total = sum(run.entries for run in runs_of(world.driven).runs)
    assert 3000 - 32 <= total <= 3000


@pytest.mark.usefixtures("small")
def test_trimmed_keys_leave_the_index() -> None:
    """Merges leave out what is trimmed, and wholly trimmed runs are dropped."""
    world = World()
    for step in range(1000):
        world.append(([[f"a{step}", f"b{step}"]], 0))
        if step % 20 == 19:
            world.driven.one(Trim(TOPIC, 0, step - 10))
    world.driven.idle(50)
    hashes = [key for key in world.driven.rows() if key[0] == Table.KEY_HASHES]
    assert len(hashes) < 150, "of 400 blocks and more"
    for step in (5, 988, 995):
        world.check(f"a{step}")


@pytest.mark.usefixtures("small")
def test_a_batch_that_is_trimmed_in_its_middle_is_found_and_stays_through_merges() -> None:
    """Its last records can still be read, so they can be found by key; one that ended is gone."""
    world = World()
    world.append(([["gone"], ["gone"]], 0))
    world.append(([["first"], ["second"], ["last"]], 0))
    world.driven.one(Trim(TOPIC, 0, 4))
    for step in range(300):
        world.check("last")
        world.check("gone")
        world.append(([[f"a{step}"]], 1))
    assert any(run.level > 1 for run in runs_of(world.driven).runs), "it went through a merge"


@pytest.mark.usefixtures("small")
def test_topics_are_apart_and_deleted_ones_refused() -> None:
    world = World()
    world.driven.one(create(OTHER_TOPIC, "other"))
    for step in range(60):
        world.append(([[f"k{step}"]], 0))
        world.driven.append(keyed([[f"k{step}"]], 1, OTHER_TOPIC))
    world.check("k7")
    world.driven.one(DeleteTopic(OTHER_TOPIC))
    world.driven.idle(10)
    with pytest.raises(DledgerError) as caught:
        world.driven.machine.queries.lookup_key(OTHER_TOPIC, key_hash(b"k7"), 0, 0, 10)
    assert caught.value.code is Code.TOPIC_NOT_FOUND
    world.check("k7")


def test_a_batch_with_very_many_keys() -> None:
    """More than level 0 takes at once: closed at once, found at once."""
    world = World()
    keys = [[f"r{record}-{key}" for key in range(64)] for record in range(200)]
    world.append((keys, 0))
    world.append(([["r150-7"]], 1))
    world.check("r150-7")
    world.check("r0-0")
    world.restart()
    world.check("r199-63")


@pytest.mark.usefixtures("small")
def test_equal_keys_of_one_batch_are_one_hit() -> None:
    """In level 0, where a batch's hashes lie as they came, and in a run."""
    world = World()
    world.append(([["a"], ["a"], ["b", "a"]], 0))
    world.check("a")
    world.append(([[f"k{at % 8}"] for at in range(40)], 0))
    assert [run.entries for run in runs_of(world.driven).runs] == [2 + 8]
    world.check("a")
    world.check("k7")


@pytest.mark.usefixtures("small")
def test_batches_of_one_entry_are_indexed_together_and_topics_apart() -> None:
    world = World()
    world.driven.one(create(OTHER_TOPIC, "other"))
    for step in range(40):
        key = f"k{step % 4}"
        payloads = [keyed([[key]], at % 2, (TOPIC, OTHER_TOPIC)[at // 2]) for at in range(4)]
        offsets = [offset_of(result) for result in world.driven.append(*payloads)]
        assert offsets == [step] * 4
    for topic in (TOPIC, OTHER_TOPIC):
        for at in range(4):
            hits = world.driven.machine.queries.lookup_key(
                topic, key_hash(b"k%d" % at), 0, 0, 100
            ).hits
            found = [(hit.span.base_offset, hit.queue) for hit in hits]
            assert found == [(step, queue) for step in range(36 + at, -1, -4) for queue in (1, 0)]


places = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1), st.integers(0, 1023), st.integers(0, 2**48 - 1),
        st.lists(st.integers(0, 5) | st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    ),
    min_size=1, max_size=8, unique_by=lambda item: item[0],
)  # fmt: skip


@given(drawn=places)
def test_entries_are_the_same_with_and_without_numpy(
    drawn: list[tuple[int, int, int, list[int]]],
) -> None:
    """Members may differ in what is installed, never in their rows."""
    drawn.sort(key=lambda item: item[0])
    records = [
        (
            KeyPlace(position, queue, offset),
            b"".join(value.to_bytes(8, "little") for value in hashes),
        )
        for position, queue, offset, hashes in drawn
    ]
    made = entries_of(records)
    assert made == entries_of(records, plain=True)
    expected = {
        (value, KeyPlace(position, queue, offset))
        for position, queue, offset, hashes in drawn
        for value in hashes
    }
    found = [(int.from_bytes(entry[:8], "big"), place_of(entry)) for entry in split(made)]
    assert found == sorted(expected)
    parts = [entries_of([record]) for record in records]
    assert sort(parts) == sort(parts, plain=True) == entries_of(records)


def test_hashes_that_differ_in_their_lowest_bits_only_are_in_order() -> None:
    """Their places in the batch share these bits while numpy sorts."""
    hashes = [(7 << 40) + (at * 37) % 64 for at in range(64)]
    column = b"".join(value.to_bytes(8, "little") for value in hashes)
    made = entries_of([(KeyPlace(1, 2, 3), column)])
    assert [int.from_bytes(entry[:8], "big") for entry in split(made)] == sorted(hashes)


def test_the_directory_survives_its_codec() -> None:
    directory = Directory(
        9, 4,
        [Run(1, 3, 4096, -5, 7, 1 << 63), Run(2, 8, 65_536, 1, 2, 3)],
        [Merge(1, (3, 4), 7, [b"", b"x" * 25], 55, 4, b"c" * 25, b"o" * 24), Merge(2, (), 8, [])],
    )  # fmt: skip
    assert decode_directory(encode_directory(directory)) == directory
    assert decode_directory(encode_directory(Directory())) == Directory()
