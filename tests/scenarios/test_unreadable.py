"""Batches that nobody can decode: refused when they come in, and passed over only when asked, told.

Goal: one such batch ends no reader for good, and none leaves it out without a word. Small enough to
catch known bugs with. Method: batches of a broken producer, whose checksum is right.
"""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import ConsumerCore
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable
from dledger_client.arrow import Decoder, ExpectedQueue, Span
from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export import run as protocol
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import UNREADABLE, Gap
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import Outcome
from dledger_client.unreadable import Unreadable
from dledger_proto.batch.codec import Record, check_batch, encode_batch
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import FetchFrame, FetchRow
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelGroup, topic_message
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk, body_of
from tests.unit.proto.samples import TOPIC_ID, refused
from tests.unreadable import compressed, with_bad_bodies, with_bad_properties, without_declared_size

OPTIONS = Options("orders", file_bytes=MIB)
ACCEPTING = replace(OPTIONS, accept_unreadable=True)
SOUND = compressed(TOPIC_ID, 0, 3)
BAD = with_bad_bodies(SOUND)


def damaged(batch: bytes) -> bytes:
    """Return what a disk or a wire made of a batch; its bodies do not decompress."""
    return batch[:-8] + b"nonsense"


# When they come in.


def test_what_nobody_could_decode_is_not_stored() -> None:
    """As far as that shows without decompressing."""
    check_batch(SOUND)
    tagged = encode_batch(
        [Record(b"x", tag="tag")] * 3, topic_id=TOPIC_ID, queue=0, stamp=None, base_number=0,
        base_time_ms=1,
    )  # fmt: skip
    for count in (tagged, with_many(100)):
        check_batch(count)
        refused(lambda batch=count: check_batch(with_bad_properties(batch)), Code.UNREADABLE_BATCH)  # type: ignore[misc]
    refused(lambda: check_batch(without_declared_size(SOUND)), Code.UNREADABLE_BATCH)


def with_many(count: int) -> bytes:
    return encode_batch(
        [Record(b"", keys=("k",))] * count, topic_id=TOPIC_ID, queue=0, stamp=None, base_number=0,
        base_time_ms=1,
    )  # fmt: skip


# By columns.


def offsets_of(*batches: bytes, told: list[Unreadable] | None = None) -> list[int]:
    """Return the offsets that are handed out of batches of three records."""
    spans = [Span(3 * at, 0, 3, 1, memoryview(batch)) for at, batch in enumerate(batches)]
    tell = None if told is None else told.append
    source = ExpectedQueue("orders", TOPIC_ID, 0, "g")
    decoder = Decoder(source, ["queue_offset", "body"], 0, 3 * len(batches), tell)
    return [row["queue_offset"] for batch in decoder.decode(spans) for row in batch.to_pylist()]


def test_columns_pass_over_it_only_when_asked_and_tell() -> None:
    """Exactly its own records, whatever it was decoded together with."""
    error = refused(lambda: offsets_of(SOUND, BAD, SOUND), Code.UNREADABLE_BATCH)
    assert "orders/0 of group g: offsets 3 to 5, 3 records, cannot be decoded" in error.detail
    told: list[Unreadable] = []
    assert offsets_of(SOUND, BAD, SOUND, BAD, told=told) == [0, 1, 2, 6, 7, 8]
    assert [(each.start, each.end, each.records) for each in told] == [(3, 6, 3), (9, 12, 3)]


def test_columns_never_pass_over_damage() -> None:
    """What a disk or a wire did is no reason (I15): another member has it whole."""
    told: list[Unreadable] = []
    refused(lambda: offsets_of(SOUND, damaged(SOUND), told=told), Code.CORRUPT_BATCH)
    assert told == []


# By consumers.


def consumer(*batches: bytes, fail_on_unreadable: bool) -> ConsumerCore:
    """Return a consumer that got batches of three records in one frame."""
    routes = RouteTable()
    group = ModelGroup("a", ["a0", "a1", "a2"])
    topics = [topic_message("t", [("a", 2)])]
    routes.apply(
        routes_pb2.RoutesReply(full=True, cluster="c", groups=[group.route()], topics=topics)
    )
    core = ConsumerCore(
        routes, MemberChoice(), random.Random(1), prefer="leader", buffer_bytes=MIB,
        fail_on_unreadable=fail_on_unreadable,
    )  # fmt: skip
    core.assign(("t", 0), TOPIC_ID, "a", 0)
    core.pump(0.0)
    (opened,) = [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
    rows = [FetchRow(3 * at, 0, 3, len(batch)) for at, batch in enumerate(batches)]
    views = [memoryview(batch) for batch in batches]
    core.frame(opened.stream, FetchFrame(0, Code.OK, "", 0, 99, 99, rows, views), 0.0)
    return core


def test_a_consumer_never_passes_over_damage() -> None:
    """It asks another member, and stands where it was."""
    core = consumer(damaged(SOUND), SOUND, fail_on_unreadable=False)
    assert core.buffer.take(100) == []
    assert core.read(("t", 0)).position == 0


def test_a_consumer_hands_out_what_it_was_not_asked_to_pass_over() -> None:
    core = consumer(SOUND, BAD, SOUND, fail_on_unreadable=True)
    assert [batch.base_offset for batch in core.buffer.take(100)] == [0, 3, 6]


def test_a_consumer_tells_what_it_passes_over() -> None:
    core = consumer(SOUND, BAD, SOUND, fail_on_unreadable=False)
    assert [batch.base_offset for batch in core.buffer.take(100)] == [0, 6]
    told = [each.what for each in core.take_actions() if isinstance(each, fetch.TellUnreadable)]
    assert [(each.group, each.start, each.end) for each in told] == [("a", 3, 6)]


# By exports.


@contextmanager
def folder() -> Iterator[ExportStorage]:
    """Yield where an export will be."""
    with tempfile.TemporaryDirectory() as made:
        yield ExportStorage(Path(made) / "lake", QuickDisk())


def run(storage: ExportStorage, log: FakeLog, options: Options) -> Outcome:
    return protocol.export_once(storage, log, HereEngine(), options, lambda: 1_700_000_000_000)


def exported(storage: ExportStorage) -> list[tuple[int, int]]:
    rows = read_export(storage.root).read().to_pylist()
    assert all(row["body"] == body_of(row["queue_id"], row["queue_offset"]) for row in rows)
    return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


def test_an_export_refuses_it_and_its_open_plan_goes_on_with_the_option() -> None:
    """Nothing is published without; with it all else is, and each gap is in the manifest."""
    log = FakeLog({0: 60, 1: 8}, unreadable={0: ((10, 15), (15, 17), (59, 60)), 1: ((0, 8),)})
    with folder() as storage:
        for _ in range(2):
            with pytest.raises(ExportError) as caught:
                run(storage, log, OPTIONS)
            assert caught.value.code is ExportCode.UNREADABLE
            told = str(caught.value)
            assert "of group g: offsets " in told
            assert "records, cannot be decoded: it is garbage" in told
            assert "--accept-unreadable" in told
            assert history.last_number(storage) == -1, "nothing is published"
        accepting = replace(log, ends={0: 90, 1: 8})
        outcome = run(storage, accepting, ACCEPTING)
        assert outcome.adopted, "the plan that was left open is finished"
        assert outcome.manifest is not None
        detail = "it is garbage"
        assert outcome.manifest.gaps == (
            Gap(0, 10, 17, UNREADABLE, detail),
            Gap(0, 59, 60, UNREADABLE, detail),
            Gap(1, 0, 8, UNREADABLE, detail),
        )
        bad = {(0, at) for at in (*range(10, 17), 59)}
        assert exported(storage) == [(0, at) for at in range(60) if (0, at) not in bad]
        run(storage, accepting, OPTIONS)
        assert len(exported(storage)) == 90 - len(bad), "what came later needs no option"
        found = upkeep.verify(storage, accepting)
        assert found.problems == ()
        assert sum(gap.records for gap in found.gaps) == len(bad) + 8


def test_gaps_outlive_a_compaction_and_its_checkpoint() -> None:
    """Files on both sides of a gap stay apart."""
    log = FakeLog({0: 30}, unreadable={0: ((10, 12),)}, records_per_day=1_000)
    with folder() as storage:
        run(storage, log, ACCEPTING)
        run(storage, replace(log, ends={0: 40}), ACCEPTING)
        before = exported(storage)
        outcome = upkeep.compact(storage, HereEngine(), 64 * MIB, lambda: 1_700_000_000_000)
        assert outcome.manifest is not None
        assert exported(storage) == before
        version = history.load(storage)
        assert [(entry.start, entry.end) for entry in read_export(storage.root).files] == [
            (0, 10),
            (12, 40),
        ]
        assert version.gaps == [Gap(0, 10, 12, UNREADABLE, "it is garbage")]
        assert version.gaps == history.load(storage, whole=True).gaps
        assert upkeep.verify(storage, log).problems == ()


def test_a_file_that_was_exported_while_it_could_be_read_is_not_called_wrong() -> None:
    log = FakeLog({0: 5})
    with folder() as storage:
        run(storage, log, OPTIONS)
        found = upkeep.verify(storage, replace(log, unreadable={0: ((1, 2),)}))
        assert [problem.code for problem in found.problems] == [ExportCode.NOT_COMPARED]
