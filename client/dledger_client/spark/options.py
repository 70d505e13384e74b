"""The options of `format("dledger")`: names, values, the sentence about a wrong one. Pure.

Owns: the table of options and their parsing. Not: what edges mean (`reading/plan.py`).

Spark hands names over in lower case. A table made by SQL adds options of its own; this module knows
and ignores them. When Spark reads such a table it gives no options at all, and the error says so.
Any other unknown name is refused, and the error names the nearest known one: a misspelt
`startingOffset` would otherwise read from the beginning without a warning.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from dledger_client._shell.wire import parse_addresses
from dledger_client.arrow.schema import choose_columns, unknown
from dledger_client.config import ConnectionConfig
from dledger_client.errors import error_of, invalid
from dledger_client.reading import EARLIEST, LATEST, Edge
from dledger_client.reading.plan import PARTITIONS_MAX
from dledger_proto.errors import DledgerError
from dledger_proto.limits import GIB, GROUP_NAME_LENGTH_MAX, KIB, MIB, TIME_MS_MAX

OPTIONS: Final = (
    "endpoints", "path", "topic", "topics", "topicsPattern", "assign", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "minPartitions",
    "maxRecordsPerPartition", "maxBytesPerPartition", "failOnDataLoss", "failOnUnreadable",
    "includeProperties",
    "columns", "readFrom", "pushdown", "inside", "tlsFolder", "user", "secretFile", "holdMs",
    "holdOwner", "stallTimeoutMs",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
OF_TABLES: Final = ("owner", "provider", "location", "is_managed_location", "external", "comment")
"""What `CREATE TABLE ... USING dledger` adds, besides `option.*`."""
OF_MEMBERS: Final = (
    "endpoints", "readFrom", "inside", "tlsFolder", "user", "secretFile", "holdMs", "holdOwner",
    "stallTimeoutMs",
)  # fmt: skip
"""Options about how members are asked. A read by `path` asks no member."""
OF_STREAMS: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
OF_BATCHES: Final = (
    "path", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown",
)  # fmt: skip
TABLE_WITHOUT_OPTIONS: Final = (
    "endpoints (or path) and topic: missing, no option came with this read. If it reads a "
    "table: Spark gives the OPTIONS of CREATE TABLE to that statement alone, not to a SELECT from "
    "the table. Make a view in its place, CREATE TEMPORARY VIEW name USING dledger OPTIONS (...), "
    "or say the options where the table is read, SELECT ... FROM name WITH (...)"
)
_BY_KEY: Final = {name.lower(): name for name in OPTIONS}
_SIZES: Final = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h)", re.IGNORECASE | re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,18})\s*([bkmg]?)b?", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
SIZE_MAX: Final = 1 << 62
"""Bytes or records, of a limit: Java counts up to the double."""
SHOWN_MAX: Final = 200
"""Characters of a value that an error shows."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a read is asked for. Pickles."""

    endpoints: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str
    only: frozenset[tuple[str, int]] | None
    start: Edge
    end: Edge
    columns: tuple[str, ...]
    path: str = ""
    """Of stopped members' data folders, read in place of `endpoints`; one of the two is empty."""
    min_partitions: int = 1
    max_records: int = 0
    """0: any."""
    max_bytes: int = 128 * MIB
    fail_on_data_loss: bool = True
    fail_on_unreadable: bool = True
    read_from: str = "follower"
    pushdown: bool = False
    connection: ConnectionConfig = field(default_factory=ConnectionConfig)
    hold_ms: int = 600_000
    """0: nothing is held. Tasks renew the hold; it ends when its time is over."""
    hold_owner: str = ""
    """Empty: all jobs that read from about there share the hold. Spark tells nobody that a job has
    ended, so a hold of each job's own would stay until its time is over."""
    stall_ms: int = 60_000
    trigger_records: int = 0
    """Of one batch of a stream; 0: any."""
    trigger_bytes: int = 0
    """The same in bytes, about; Spark takes one limit, so not both."""
    trigger_records_min: int = 0
    """A batch waits until there are so many, but not longer than `trigger_delay_ms`."""
    trigger_delay_ms: int = 0


def parse(options: Mapping[str, str]) -> Settings:
    """Return the settings; ClientError naming option, value and what it must be."""
    given = _known(options)
    if not given:
        raise invalid(TABLE_WITHOUT_OPTIONS)
    path = _path(given)
    topics, pattern, only = _topics(given)
    read = _Values(given)
    if "maxOffsetsPerTrigger" in given and "maxBytesPerTrigger" in given:
        raise invalid("maxOffsetsPerTrigger, maxBytesPerTrigger: give one of them")
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        raise invalid("maxTriggerDelay: nothing waits without minOffsetsPerTrigger; give both")
    start, end = _edge(given, "starting", topics), _edge(given, "ending", topics)
    _check_order(start, end)
    hold_ms = 0 if path else read.number("holdMs", 600_000, 0, 7 * 24 * 3_600_000)
    return Settings(
        endpoints=() if path else tuple(_endpoints(given)),
        topics=topics,
        pattern=pattern,
        only=only,
        start=start,
        end=end,
        columns=_columns(given, include_properties=read.flag("includeProperties", default=False)),
        path=path,
        min_partitions=read.number("minPartitions", 1, 1, PARTITIONS_MAX),
        max_records=read.number("maxRecordsPerPartition", 0, 1, SIZE_MAX),
        max_bytes=read.size("maxBytesPerPartition", 128 * MIB),
        fail_on_data_loss=read.flag("failOnDataLoss", default=True),
        fail_on_unreadable=read.flag("failOnUnreadable", default=True),
        read_from=read.choice("readFrom", "follower", ("follower", "leader", "any")),
        pushdown=read.flag("pushdown", default=False),
        connection=ConnectionConfig(
            inside=read.flag("inside", default=False),
            tls_folder=given.get("tlsFolder", ""),
            user=given.get("user", ""),
            secret_file=given.get("secretFile", ""),
        ),
        hold_ms=hold_ms,
        hold_owner=_owner(given, hold_ms),
        stall_ms=read.number("stallTimeoutMs", 60_000, 100, 3_600_000),
        trigger_records=read.number("maxOffsetsPerTrigger", 0, 1, SIZE_MAX),
        trigger_bytes=read.size("maxBytesPerTrigger", 0),
        trigger_records_min=read.number("minOffsetsPerTrigger", 0, 1, SIZE_MAX),
        trigger_delay_ms=read.duration("maxTriggerDelay", 15 * 60_000),
    )


def refuse(options: Mapping[str, str], names: Sequence[str], what: str) -> None:
    """Raise INVALID_ARGUMENT for options that have no effect on this kind of read."""
    given = _known(options)
    found = [name for name in names if name in given]
    if found:
        raise invalid(f"{', '.join(found)}: {what}")


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for key, value in options.items():
        name = _BY_KEY.get(key.lower())
        if name is not None:
            given[name] = value
        elif key.lower() not in OF_TABLES and not key.lower().startswith("option."):
            raise invalid(f"option {unknown(key, OPTIONS)}")
    return given


def _endpoints(given: Mapping[str, str]) -> list[str]:
    found = [part.strip() for part in given.get("endpoints", "").split(",") if part.strip()]
    if not found:
        raise invalid(
            "endpoints: missing; name servers or members, host:port, several by comma (or path, "
            "the data folder of a stopped member)"
        )
    try:
        return parse_addresses(found)
    except ValueError as error:
        raise invalid(f"endpoints: {error}") from None


def _owner(given: Mapping[str, str], hold_ms: int) -> str:
    owner = given.get("holdOwner", "")
    if owner and not hold_ms:
        raise invalid("holdOwner, holdMs: nothing is held for 0 ms; leave out one of them")
    if len(owner.encode()) > GROUP_NAME_LENGTH_MAX:
        raise invalid(f"holdOwner: {shown(owner)}, must be up to {GROUP_NAME_LENGTH_MAX} bytes")
    return owner


def _path(given: Mapping[str, str]) -> str:
    """Return the folder of the option `path`, empty without; SQL makes a URI of it."""
    if "path" not in given:
        return ""
    refused = [name for name in OF_MEMBERS if name in given]
    if refused:
        raise invalid(
            f"path, {', '.join(refused)}: path asks no member; leave out path or the others"
        )
    text = given["path"].strip()
    scheme = _SCHEME.match(text)
    path = unquote(urlsplit(text).path) if scheme and scheme[1].lower() == "file" else text
    if not path or (scheme and path == text):
        raise invalid(f"path: {given['path']!r}, must be a folder that this machine can open")
    return path


def _topics(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str, frozenset[tuple[str, int]] | None]:
    names = [name for name in ("topic", "topics", "topicsPattern", "assign") if name in given]
    if len(names) != 1:
        raise invalid(
            f"{', '.join(names) or 'topic'}: give exactly one of topic, topics, topicsPattern, "
            "assign"
        )
    (name,) = names
    value = given[name]
    if name == "topicsPattern":
        return (), value, None
    if name == "assign":
        assigned = _assigned(value)
        return tuple(sorted({topic for topic, _ in assigned})), "", assigned
    topics = [value] if name == "topic" else [part.strip() for part in value.split(",")]
    topics = list(dict.fromkeys(topic for topic in topics if topic))
    if not topics:
        raise invalid(f"{name}: empty")
    return tuple(topics), "", None


def _json(option: str, text: str) -> dict[str, object]:
    try:
        found: object = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{option}: {shown(text)} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid(f"{option}: {shown(text)} is not a JSON object")
    return cast("dict[str, object]", found)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON; ValueError for a name that is there twice: the last would win."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def shown(value: object) -> str:
    """Return a value as errors show it: as written; of a long value the beginning."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _assigned(text: str) -> frozenset[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for topic, queues in _json("assign", text).items():
        numbers = cast("list[object]", queues) if isinstance(queues, list) else []
        if not numbers or not all(type(number) is int for number in numbers):
            raise invalid(f'assign: {shown(text)}, must be {{"topic": [0, 1, ...]}}')
        found |= {(topic, cast("int", number)) for number in numbers}
    if not found:
        raise invalid("assign: names no queue")
    return frozenset(found)


def _edge(given: Mapping[str, str], which: str, topics: tuple[str, ...]) -> Edge:
    """Return the edge that `which` ("starting", "ending") options give, in one of three ways."""
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    timestamps = f"{offsets}ByTimestamp"
    names = [name for name in (offsets, timestamp, timestamps) if name in given]
    if len(names) > 1:
        raise invalid(f"{', '.join(names)}: give one of them")
    if timestamp in given:
        return Edge(time_ms=_time(timestamp, given[timestamp]))
    if timestamps in given:
        return Edge(times=_by_queue(timestamps, given[timestamps], topics, _time, "1700000000000"))
    text = given.get(offsets, "").strip()
    sentinels = {"earliest": EARLIEST, "latest": LATEST}
    if not text:
        return Edge()
    if text.lower() in sentinels:
        return Edge(sentinel=sentinels[text.lower()])
    if text.startswith("group:"):
        group = text.removeprefix("group:").strip()
        if not group:
            raise invalid(f"{offsets}: {shown(text)} names no consumer group")
        return Edge(group=group)
    if not text.startswith("{"):
        raise invalid(f"{offsets}: {shown(text)}, must be earliest, latest, group:NAME or JSON")
    return Edge(offsets=_by_queue(offsets, text, topics, _offset, "120"))


def _check_order(start: Edge, end: Edge) -> None:
    """Refuse an end before its start, as far as the options tell both."""
    if start.time_ms is not None and end.time_ms is not None and start.time_ms > end.time_ms:
        raise invalid(
            f"startingTimestamp, endingTimestamp: {start.time_ms} is after {end.time_ms}, "
            "milliseconds since 1970; the start comes first"
        )
    for option, firsts, lasts in (
        ("Offsets", start.offsets, end.offsets),
        ("OffsetsByTimestamp", start.times, end.times),
    ):
        for topic, queues in (firsts or {}).items():
            for queue, first in queues.items():
                last = (lasts or {}).get(topic, {}).get(queue, LATEST)
                if 0 <= last < first:
                    raise invalid(
                        f"starting{option}, ending{option}: {topic}/{queue} starts at {first} and "
                        f"ends before {last}; the start comes first"
                    )


def _offset(option: str, given: object) -> int:
    if type(given) is not int or given < EARLIEST:
        raise invalid(
            f"{option}: {shown(given)}, must be an offset, or -2 for earliest and -1 for latest"
        )
    return given


def _by_queue(
    option: str,
    text: str,
    topics: tuple[str, ...],
    read: Callable[[str, object], int],
    example: str,
) -> dict[str, dict[int, int]]:
    """Return a JSON map by topic and queue; of one topic the outer level may be left out.

    `read` makes a number of a value that it is told the place of.
    """
    found = _json(option, text)
    by_topic: dict[str, dict[int, int]] = {}
    if len(topics) == 1 and all(not isinstance(value, dict) for value in found.values()):
        found = {topics[0]: found}
    for topic, queues in found.items():
        if not isinstance(queues, dict):
            raise invalid(f'{option}: {shown(text)}, must be {{"topic": {{"0": {example}, ...}}}}')
        for queue, value in cast("dict[str, object]", queues).items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,8}", queue):
                raise invalid(f"{option}: {topic}: {shown(queue)}, must be the number of a queue")
            number = read(f"{option}: {topic}: {queue}", value)
            by_topic.setdefault(topic, {})[int(queue)] = number
    return by_topic


def _time(option: str, given: object) -> int:
    """Return milliseconds since 1970 from such a number or from ISO 8601 (without zone: UTC)."""
    text = str(given) if type(given) is int else given
    if not isinstance(text, str):
        raise invalid(f"{option}: {shown(given)}, must be a number or text")
    time_ms = -1
    if _NUMBER.fullmatch(text.strip()):
        time_ms = int(text)
    else:
        with suppress(ValueError):
            moment = dt.datetime.fromisoformat(text.strip())
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
            time_ms = round(zoned.timestamp() * 1_000)
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise invalid(
            f"{option}: {shown(text)}, must be milliseconds since 1970 or like "
            "2026-01-31T12:00:00Z, from 1970 to 9999"
        )
    return time_ms


def _columns(given: Mapping[str, str], *, include_properties: bool) -> tuple[str, ...]:
    names = None
    if "columns" in given:
        names = [part.strip() for part in given["columns"].split(",") if part.strip()]
    try:
        return choose_columns(names, include_properties=include_properties)
    except DledgerError as error:
        raise error_of(error.code, error.detail) from None


class _Values:
    """Single values of known options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def _read(
        self, name: str, default: int, parse_text: Callable[[str], int | None], must: str
    ) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        value = parse_text(text.strip())
        if value is None:
            raise invalid(f"{name}: {shown(text)}, must be {must}")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return an integer within limits."""

        def parsed(text: str) -> int | None:
            value = int(text) if _NUMBER.fullmatch(text) else -1
            return value if least <= value <= most else None

        return self._read(name, default, parsed, f"an integer from {least} to {most}")

    def size(self, name: str, default: int) -> int:
        """Return bytes, from a number with or without b, k, m, g."""

        def parsed(text: str) -> int | None:
            match = _SIZE.fullmatch(text)
            size = int(match[1]) * _SIZES[match[2].lower()] if match else 0
            return size if 0 < size <= SIZE_MAX else None

        return self._read(name, default, parsed, "bytes above 0, like 67108864, 64m or 1g")

    def duration(self, name: str, default: int) -> int:
        """Return milliseconds, from a number with ms, s, m or h."""

        def parsed(text: str) -> int | None:
            match = _DURATION.fullmatch(text)
            return int(match[1]) * _MILLISECONDS[match[2].lower()] or None if match else None

        return self._read(name, default, parsed, "a time above 0, like 30s, 15m or 1h")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        values = {"true": 1, "false": 0}
        return bool(
            self._read(name, default, lambda text: values.get(text.lower()), "true or false")
        )

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of some words."""
        text = self._given.get(name, default).strip().lower()
        if text not in choices:
            raise invalid(f"{name}: {shown(text)}, must be {', '.join(choices)}")
        return text
