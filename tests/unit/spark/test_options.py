"""Options say what they mean, and a wrong one is answered with what would be right."""

from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dledger_client.arrow.schema import schema_of
from dledger_client.errors import InvalidRequest
from dledger_client.reading import EARLIEST, LATEST, Edge
from dledger_client.spark.batch import reader_for
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import Settings, parse
from dledger_client.spark.stream import stream_reader_for

BASE = {"endpoints": "a:1, b:2", "topic": "t"}


def parsed(**options: str) -> Settings:
    return parse(BASE | options)


def test_defaults() -> None:
    """Everything there is, of one topic, held for ten minutes, from followers."""
    found = parsed()
    assert (found.endpoints, found.topics, found.pattern) == (("a:1", "b:2"), ("t",), "")
    assert (found.start, found.end, found.only) == (Edge(), Edge(), None)
    assert (found.read_from, found.hold_ms, found.fail_on_data_loss) == ("follower", 600_000, True)
    assert "properties" not in found.columns
    assert parsed(includeproperties="true").columns[-1] == "properties"
    assert parsed(columns="body, queue_offset").columns == ("body", "queue_offset")


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        ("earliest", Edge(sentinel=EARLIEST)),
        ("Latest", Edge(sentinel=LATEST)),
        ("group:readers", Edge(group="readers")),
        ('{"0": 5, "1": -2}', Edge(offsets={"t": {0: 5, 1: EARLIEST}})),
        ('{"t": {"0": -1}}', Edge(offsets={"t": {0: LATEST}})),
    ],
)
def test_offsets(text: str, edge: Edge) -> None:
    """The forms of Spark's Kafka source, and a consumer group."""
    assert parsed(startingoffsets=text).start == edge
    assert parsed(endingOffsets=text).end == edge


def test_times_and_sizes() -> None:
    """Milliseconds or ISO 8601; bytes with a letter."""
    assert parsed(startingTimestamp="1700000000000").start == Edge(time_ms=1_700_000_000_000)
    assert parsed(endingTimestamp="2023-11-14T22:13:20Z").end == Edge(time_ms=1_700_000_000_000)
    assert parsed(startingTimestamp="2023-11-14 22:13:20").start.time_ms == 1_700_000_000_000
    assert parsed(maxBytesPerPartition="64m").max_bytes == 64 << 20
    assert parsed(maxBytesPerPartition="5kb").max_bytes == 5 << 10


def test_a_time_for_each_queue() -> None:
    """As maps of offsets are written, with milliseconds or ISO 8601."""
    times = '{"0": 1700000000000, "1": "2023-11-14T22:13:20Z"}'
    found = Edge(times={"t": {0: 1_700_000_000_000, 1: 1_700_000_000_000}})
    assert parsed(startingOffsetsByTimestamp=times).start == found
    assert parsed(endingoffsetsbytimestamp=f'{{"t": {times}}}').end == found


def test_selections() -> None:
    """Exactly one of topic, topics, topicsPattern, assign."""
    several = {"endpoints": "a:1"}
    assert parse(several | {"topics": "b, a,b"}).topics == ("b", "a")
    assert parse(several | {"topicsPattern": "o.*"}).pattern == "o.*"
    assigned = parse(several | {"assign": '{"x": [1], "y": [0, 2]}'})
    assert assigned.topics == ("x", "y")
    assert assigned.only == frozenset({("x", 1), ("y", 0), ("y", 2)})
    for options in (several, BASE | {"topics": "b"}):
        with pytest.raises(InvalidRequest, match="exactly one"):
            parse(options)


def test_options_of_tables_are_left_alone() -> None:
    """What SQL adds by itself is no mistake of the user's."""
    assert parsed(owner="me", provider="dledger", **{"option.topic": "t"}) == parsed()


def test_a_path_takes_the_place_of_endpoints() -> None:
    """A folder, or the URI that SQL makes of it; nothing is held there."""
    found = parse({"path": "/data/n1", "topic": "t"})
    assert (found.path, found.endpoints, found.hold_ms) == ("/data/n1", (), 0)
    assert parse({"path": "file:/data/n%201", "topic": "t"}).path == "/data/n 1"
    assert parse({"path": "file:///data/n1", "topic": "t"}).path == "/data/n1"
    assert parsed().path == ""


@pytest.mark.parametrize(
    "name", ["endpoints", "readFrom", "inside", "holdMs", "holdOwner", "stallTimeoutMs"]
)
def test_a_path_contradicts_what_is_of_members(name: str) -> None:
    """By name, whatever the value."""
    with pytest.raises(InvalidRequest, match=f"path, {name}: "):
        parse({"path": "/data/n1", "topic": "t", name: "leader"})


def test_a_read_without_any_option_is_one_of_a_table() -> None:
    """Spark gives a SELECT from a table none of the table's options; the ways around are named."""
    for options in ({}, {"owner": "me", "provider": "dledger"}):
        with pytest.raises(InvalidRequest, match=r"CREATE TEMPORARY VIEW .* WITH"):
            parse(options)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ({"endpoints": ""}, "endpoints: missing"),
    ({"path": "s3://bucket/n1", "endpoints": None}, "a folder that this machine can open"),
    ({"path": " ", "endpoints": None}, "a folder that this machine can open"),
    ({"columns": "boddy"}, "'body'"),
    ({"startingOffsets": "soon"}, "earliest, latest"),
    ({"startingOffsets": "{"}, "not JSON"),
    ({"startingOffsets": '{"0": -3}'}, "-2 for earliest"),
    ({"startingOffsets": '{"0": true}'}, "-2 for earliest"),
    ({"startingOffsets": "latest", "startingTimestamp": "1"}, "one of them"),
    ({"endingOffsetsByTimestamp": '{"0": 1}', "endingTimestamp": "1"}, "one of them"),
    ({"endingOffsetsByTimestamp": '{"0": -2}'}, "t: 0: '-2', must be milliseconds since 1970"),
    ({"endingOffsetsByTimestamp": '{"0": true}'}, "t: 0: True, must be a number or text"),
    ({"endingOffsetsByTimestamp": '{"u": 5}', "topic": None, "topics": "t,u"}, "1700000000000"),
    ({"startingOffsetsByTimestamp": '{"first": 5}'}, "must be the number of a queue"),
    ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    ({"startingOffsets": "group:"}, "no consumer group"),
    ({"maxBytesPerPartition": "0"}, "64m"),
    ({"minPartitions": "0"}, "an integer from 1"),
    ({"failOnDataLoss": "no"}, "true or false"),
    ({"readFrom": "anyone"}, "follower, leader, any"),
    ({"startingOffsets": '{"0": 1, "0": 2}'}, "'0' twice"),
    ({"startingOffsets": '{"0": 1, "00": 2}'}, "'00', must be the number of a queue"),
    ({"startingOffsets": '{"a":' * 100_000}, "not JSON"),
    ({"maxTriggerDelay": "5m"}, "without minOffsetsPerTrigger"),
    ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"}, "like 30s, 15m or 1h"),
    ({"minOffsetsPerTrigger": "0"}, "an integer from 1"),
    ({"endpoints": "a"}, "endpoints: address 'a'"),
    ({"startingTimestamp": "0001-01-01"}, "startingTimestamp: '0001-01-01', must be"),
    ({"endingTimestamp": "9" * 18}, "endingTimestamp: '9999"),
    ({"maxRecordsPerPartition": "\N{ARABIC-INDIC DIGIT THREE}"}, "an integer from 1"),
    ({"minPartitions": "9" * 5_000}, "..., must be an integer from 1 to 100000"),
    ({"maxBytesPerPartition": "9" * 5_000}, "..., must be bytes"),
    ({"maxBytesPerTrigger": "9" * 18 + "g"}, "must be bytes"),
    ({"startingOffsets": '{"0":%s}' % ("9" * 5_000)}, "... is not JSON"),
    ({"startingOffsets": '{"%s":1}' % ("9" * 5_000)}, "..., must be the number of a queue"),
    ({"holdOwner": "a-job", "holdMs": "0"}, "holdOwner, holdMs: nothing is held"),
    ({"holdOwner": "x" * 121}, "must be up to 120 bytes"),
    ({"startingTimestamp": "2", "endingTimestamp": "1"}, "2 is after 1"),
    ({"startingOffsets": '{"0":1,"1":9}', "endingOffsets": '{"0":1,"1":8}'}, "t/1 starts at 9"),
    (
        {"startingOffsetsByTimestamp": '{"0":9}', "endingOffsetsByTimestamp": '{"0":8}'},
        "startingOffsetsByTimestamp, endingOffsetsByTimestamp: t/0 starts at 9 and ends before 8",
    ),
]


def test_an_end_that_is_at_its_start_or_open_is_no_mistake() -> None:
    """Nothing is read of such a queue, or what there is."""
    parsed(startingOffsets='{"0": 5, "1": 5}', endingOffsets='{"0": 5, "1": -1}')
    parsed(startingTimestamp="5", endingTimestamp="5")
    parsed(startingOffsets='{"0": 5}', endingTimestamp="5")


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_batch_read_does_not_pass_over_what_is_of_streams(option: str) -> None:
    """It would have no effect, without a word."""
    schema = from_arrow_schema(schema_of(parsed().columns))
    with pytest.raises(DledgerReadError, match=f"{option}: only for streams"):
        reader_for(BASE | {option.lower(): "5"}, schema)
    assert stream_reader_for(BASE | {option: "5"}, schema)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "path", "pushdown"])
def test_a_stream_refuses_what_is_of_batch_reads(option: str) -> None:
    """By name."""
    schema = from_arrow_schema(schema_of(parsed().columns))
    with pytest.raises(DledgerReadError, match=f"{option}: not for a stream"):
        stream_reader_for(BASE | {option: "true"}, schema)


def test_a_schema_and_columns_must_agree() -> None:
    """One would have been passed over; a schema without any column has no rows."""
    body = from_arrow_schema(schema_of(["body"]))
    reader_for(BASE | {"columns": "body"}, body)
    reader_for(BASE, body)
    with pytest.raises(DledgerReadError, match=r"columns, .schema\(\): key and body; give one"):
        reader_for(BASE | {"columns": "key"}, body)
    with pytest.raises(DledgerReadError, match="schema: empty, known are topic, "):
        reader_for(BASE, StructType([]))


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_wrong_options_name_the_remedy(options: dict[str, Any], says: str) -> None:
    """One sentence: option, value, what it must be."""
    given = {name: value for name, value in (BASE | options).items() if value is not None}
    with pytest.raises(InvalidRequest) as caught:
        parse(given)
    assert says in str(caught.value)
