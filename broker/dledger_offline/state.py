"""The LMDB of a stopped member, row by row, read only and without a lock file.

Owns: turning rows into words. The modules of `dledger.state` draw the layouts. A row that does not
fit its layout is shown as bytes with a problem, and the next row follows.
"""

import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger.state.commands.codec import Body, Record, shown
from dledger.state.consumers.table import CONSUMER_VALUE, EPOCHS_VALUE, GRANT_VALUE, read_epochs
from dledger.state.consumers.usage import decode_use
from dledger.state.counted_time import COUNTED_KEY
from dledger.state.format_level import LEVEL_VALUE
from dledger.state.lookup.entries import ENTRY_SIZE
from dledger.state.lookup.message_ids import ID_ROW, RECORDS_MAX_VALUE
from dledger.state.lookup.runs import decode_directory
from dledger.state.machine import APPLIED_VALUE
from dledger.state.offsets import OFFSET_VALUE
from dledger.state.producers.table import PRODUCER_QUEUE_VALUE, WINDOW_ROW, Producer
from dledger.state.progress.row import decode_progress
from dledger.state.progress.wave import decode_window
from dledger.state.queues.copies import CARRIED_HEAD, CARRIED_KEY, COPY_VALUE, RENAMED_KEY
from dledger.state.queues.garbage import GARBAGE_SIZE
from dledger.state.queues.holds import HOLD_VALUE
from dledger.state.queues.references import (
    ORIGIN_AT_VALUE,
    ORIGIN_HEAD,
    PIN_NUMBER_KEY,
    decode_origin,
)
from dledger.state.queues.table import (
    CLEANED_VALUE,
    KIND_GONE,
    KIND_REFERENCE,
    NO_POSITION,
    QUEUE_VALUE,
    ROW,
)
from dledger.state.tables import KEY_U32, KEY_U64, PREFIX, Table, after
from dledger.state.timers.schedule_table import LAST_DUE, decode_schedule
from dledger.state.timers.table import WAITING_KEY, decode_timer
from dledger.state.topics.table import CONTROL_KEY, FLOOR_KEY, decode_topic
from dledger.state.users.table import META_VALUE, USER_VALUE
from dledger.state.values import Origin
from dledger.store.lmdb_check import is_new
from dledger.store.lmdb_rows import DATA_FILE, DamagedPages, NewerPages, PageFile, Walk
from dledger.store.sealed import FORMAT_KEY, SEAL_SIZE, check_format, damaged, is_sound
from dledger.store.store import NewerStore
from dledger.types import LogIndex

ROWS_SHOWN_PER_BLOCK: Final = 3
"""How many rows of a block of a consume queue are shown; the others are counted."""
_ID_SIZE: Final = 16
"""The size of the ids of topics and producers, which are the first parts of keys."""
_QUEUE_SIZE: Final = KEY_U32.size
_KINDS: Final = {KIND_REFERENCE: " reference", KIND_GONE: " gone"}
"""What is said of a row of a consume queue that is no whole batch."""

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StateRow:
    """One row: decoded, or with a problem and the bytes."""

    table: str
    key: str
    value: Fields
    raw: str
    problem: str = ""


def open_state(folder: Path, table: Table | None, limit: int) -> Iterator[StateRow]:
    """Yield up to `limit` rows of each table (or of one).

    The rows are those of the newest whole commit. They are read without LMDB, because a damaged
    file could crash the process in LMDB. Nothing is written, not even a lock. A row whose seal does
    not fit has a problem. DamagedStore, after the rows before, when a page is damaged; NewerStore;
    other OSError when the file cannot be read.
    """
    place = str(folder)
    if is_new(place):
        return
    try:
        with PageFile(str(folder / DATA_FILE)) as file:
            check_format(place, Walk(file, file.newest).get(FORMAT_KEY))
            for kind in [table] if table is not None else list(Table):
                yield from _rows(file, kind, limit)
    except DamagedPages as error:
        raise damaged(place, str(error)) from error
    except NewerPages as error:
        raise NewerStore(f"state store {place}: {error}") from error


def applied_index(folder: Path) -> LogIndex:
    """Return the last entry that the state covers, 0 without one; OSError when it can't be read."""
    rows = {row.key: row.value for row in open_state(folder, Table.META_LOCAL, sys.maxsize)}
    return LogIndex(int(str(rows.get("applied", {}).get("index", 0))))


def _rows(file: PageFile, table: Table, limit: int) -> Iterator[StateRow]:
    prefix = PREFIX[table]
    count = 0
    for rows in Walk(file, file.newest).range(prefix, after(prefix)):
        for key, sealed in rows:
            if count == limit:
                return
            count += 1
            shown = describe_row(table, key, sealed[:-SEAL_SIZE])
            if not is_sound(key, sealed):
                shown = replace(shown, problem="the row does not match its seal")
            yield shown


def describe_row(table: Table, key: bytes, value: bytes) -> StateRow:
    """Return a row in words; a row that cannot be decoded as bytes, with the reason."""
    name = table.name.lower().replace("_", "-")
    raw = value[:64].hex() + ("..." if len(value) > 64 else "")
    try:
        shown, fields = _DECODERS[table](key[1:], value)
    except (struct.error, ValueError, IndexError) as error:
        return StateRow(name, key[1:].hex(), {}, raw, str(error))
    return StateRow(name, shown, fields, raw)


def _topic(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic = decode_topic(key, value)
    return topic.name, {
        "id": key.hex(),
        "type": topic.type.name.lower(),
        "layout": [f"{part.group}:{part.queues}" for part in topic.layout],
        "layout_version": topic.layout_version,
        "write_queues": topic.write_queues,
        "read_queues": topic.read_queues,
        "permission": topic.permission,
        "control_index": topic.control_index,
        "deleted": topic.deleted,
    }


def _ids(key: bytes, *sizes: int) -> list[bytes]:
    """Cut a key into its parts; ValueError unless the parts are the whole key."""
    if len(key) != sum(sizes):
        raise ValueError(f"key of {len(key)} bytes, {sum(sizes)} wanted")
    parts: list[bytes] = []
    at = 0
    for size in sizes:
        parts.append(key[at : at + size])
        at += size
    return parts


def _queue_name(topic_id: bytes, queue: bytes) -> str:
    return f"{topic_id.hex()}/{KEY_U32.unpack(queue)[0]}"


def _queue(key: bytes, value: bytes) -> tuple[str, Fields]:
    minimum, maximum, first_position, block_base, block_rows = QUEUE_VALUE.unpack(value)
    return _queue_name(*_ids(key, _ID_SIZE, _QUEUE_SIZE)), {
        "minimum": minimum,
        "maximum": maximum,
        "first_position": None if first_position == NO_POSITION else first_position,
        "block_base": block_base,
        "block_rows": block_rows,
    }


def _compacted(key: bytes, value: bytes) -> tuple[str, Fields]:
    return _queue_name(*_ids(key, _ID_SIZE, _QUEUE_SIZE)), {
        "cleaned": CLEANED_VALUE.unpack(value)[0]
    }


def _queue_rows(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue, base = _ids(key, _ID_SIZE, _QUEUE_SIZE, KEY_U64.size)
    spans = [
        f"offset {base_offset} records {first}+{count} at {position} size {size} time {time_ms}"
        + _KINDS.get(kind, "")
        for kind, first, count, size, base_offset, position, time_ms in ROW.iter_unpack(value)
    ]
    more = len(spans) - ROWS_SHOWN_PER_BLOCK
    shown = spans[:ROWS_SHOWN_PER_BLOCK] + ([f"and {more} more"] if more > 0 else [])
    name = f"{_queue_name(topic_id, queue)} from {KEY_U64.unpack(base)[0]}"
    return name, {"batches": len(spans), "rows": shown}


def _producer(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer = Producer.decode(value)
    return key.hex(), {
        "epoch": producer.epoch,
        "active_step": producer.active_step,
        "life": producer.life_id.hex(),
        "former_life": producer.former_life_id.hex(),
        "owner": producer.owner,
    }


def _producer_activity(key: bytes, _value: bytes) -> tuple[str, Fields]:
    step, producer_id = _ids(key, KEY_U64.size, _ID_SIZE)
    return f"{KEY_U64.unpack(step)[0]} {producer_id.hex()}", {"producer": producer_id.hex()}


def _producer_queue(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, topic_id, queue = _ids(key, _ID_SIZE, _ID_SIZE, _QUEUE_SIZE)
    epoch, next_sequence, block, rows = PRODUCER_QUEUE_VALUE.unpack(value)
    return f"{producer_id.hex()} {_queue_name(topic_id, queue)}", {
        "epoch": epoch,
        "next_sequence": next_sequence,
        "block": block,
        "rows": rows,
    }


def _producer_window(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, topic_id, queue, block = _ids(key, _ID_SIZE, _ID_SIZE, _QUEUE_SIZE, KEY_U64.size)
    rows = list(WINDOW_ROW.iter_unpack(value))
    fields: dict[str, object] = {"batches": len(rows)}
    if rows:
        fields["sequences"] = f"{rows[0][0]} to {rows[-1][0] + rows[-1][2] - 1}"
        fields["offsets"] = f"{rows[0][1]} to {rows[-1][1] + rows[-1][2] - 1}"
    name = f"{producer_id.hex()} {_queue_name(topic_id, queue)} block {KEY_U64.unpack(block)[0]}"
    return name, fields


_NUMBERS: Final = {
    COUNTED_KEY[1:]: "counted_ms",
    FLOOR_KEY[1:]: "control_index",
    PIN_NUMBER_KEY[1:]: "next_number",
    WAITING_KEY[1:]: "waiting",
}


def _meta(key: bytes, value: bytes) -> tuple[str, Fields]:
    name = key.decode()
    if name == "applied":
        index, term, time_ms, position, digest = APPLIED_VALUE.unpack(value)
        return name, {
            "index": index,
            "term": term,
            "time_ms": time_ms,
            "end_position": position,
            "digest": digest.hex(),
        }
    if name == "format":
        return name, {"magic": value[:4].decode(), "version": int.from_bytes(value[4:6], "little")}
    if name == "level":
        return name, {"format_level": LEVEL_VALUE.unpack(value)[0]}
    if key == RENAMED_KEY[1:]:
        return "renamed", {"up_to": COPY_VALUE.unpack(value)[0]}
    if key == CARRIED_KEY[1:]:
        horizon, target = CARRIED_HEAD.unpack_from(value)
        cursor = value[CARRIED_HEAD.size :].hex()
        return name, {"horizon": horizon, "target": target, "cursor": cursor}
    if key in _NUMBERS:
        return name, {_NUMBERS[key]: KEY_U64.unpack(value)[0]}
    if key == CONTROL_KEY[1:]:
        return name, {"control_id": value.hex()}
    return name, {"bytes": value.hex()}


def _topic_deleted(key: bytes, _value: bytes) -> tuple[str, Fields]:
    deleted_ms, topic_id = key[: KEY_U64.size], key[KEY_U64.size :]
    return topic_id.hex(), {"deleted_ms": KEY_U64.unpack(deleted_ms)[0]}


def _key_directory(key: bytes, value: bytes) -> tuple[str, Fields]:
    directory = decode_directory(value)
    return key.hex(), {
        "next_run": directory.next_run,
        "first_block": directory.first_block,
        "runs": len(directory.runs),
        "merges": len(directory.merges),
    }


def _key_hashes(key: bytes, value: bytes) -> tuple[str, Fields]:
    if len(key) == _ID_SIZE + 1 + KEY_U64.size:
        topic_id, _, block = _ids(key, _ID_SIZE, 1, KEY_U64.size)
        name = f"{topic_id.hex()} level 0 block {KEY_U64.unpack(block)[0]}"
        return name, {"bytes": len(value)}
    topic_id, _, run, first = _ids(key, _ID_SIZE, 1, KEY_U64.size, ENTRY_SIZE)
    count, rest = divmod(len(value), ENTRY_SIZE)
    if rest:
        raise ValueError(f"{len(value)} bytes are not a whole number of entries of {ENTRY_SIZE}")
    return f"{topic_id.hex()} run {KEY_U64.unpack(run)[0]} from {first.hex()}", {"entries": count}


def _message_ids(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, bucket = key[:_ID_SIZE], key[_ID_SIZE:]
    if not bucket:
        return producer_id.hex(), {"records_max": RECORDS_MAX_VALUE.unpack(value)[0]}
    rows = [
        f"{base}+{count} at {topic_id.hex()}/{queue} offset {offset}"
        for base, count, queue, offset, topic_id in ID_ROW.iter_unpack(value)
    ]
    return f"{producer_id.hex()} bucket {KEY_U64.unpack(bucket)[0]}", {"numbers": rows}


def _group_offset(key: bytes, value: bytes) -> tuple[str, Fields]:
    offset, time_ms = OFFSET_VALUE.unpack_from(value)
    return _queue_and_name(key), {
        "offset": offset,
        "time_ms": time_ms,
        "metadata": value[OFFSET_VALUE.size :].decode(),
    }


def _progress(key: bytes, value: bytes) -> tuple[str, Fields]:
    size = _ID_SIZE + _QUEUE_SIZE
    row = decode_progress(value)
    return f"{key[size:].hex()} {_queue_name(key[:_ID_SIZE], key[_ID_SIZE:size])}", {
        "floor": row.floor,
        "committed_ms": row.committed_ms,
        "metadata": row.metadata,
        "epoch": row.epoch,
        "consumer": row.consumer,
        "holding": row.holding.name,
        "lease_until_ms": row.lease_until_ms,
        "resets": row.resets,
        "done": [f"{first} to {end - 1}" for first, end in row.done],
        "suspended": [
            f"{offset}: {attempts} attempts, until {until_ms}"
            for offset, (attempts, until_ms) in sorted(row.suspended.items())
        ],
    }


def _failure_wave(key: bytes, value: bytes) -> tuple[str, Fields]:
    return key.hex(), dict(decode_window(value)._asdict())


def _group_use(key: bytes, value: bytes) -> tuple[str, Fields]:
    (group_id,) = _ids(key, _ID_SIZE)
    return group_id.hex(), dict(decode_use(value)._asdict())


def _consumer(key: bytes, value: bytes) -> tuple[str, Fields]:
    return f"{key[:_ID_SIZE].hex()} {key[_ID_SIZE:].decode()}", _record(CONSUMER_VALUE, value)


def _grant(key: bytes, value: bytes) -> tuple[str, Fields]:
    group_id, topic_id, queue = _ids(key, _ID_SIZE, _ID_SIZE, _QUEUE_SIZE)
    return f"{group_id.hex()} {_queue_name(topic_id, queue)}", _record(GRANT_VALUE, value)


def _group_epochs(key: bytes, value: bytes) -> tuple[str, Fields]:
    found = read_epochs(value)
    return key.hex(), {name: shown(getattr(found, name)) for name, _ in EPOCHS_VALUE.fields}


def _record(form: Record, value: bytes) -> Fields:
    body = Body(value, 0)
    found = form.read(body)
    body.finish()
    return {name: shown(getattr(found, name)) for name, _ in form.fields}


def _user(key: bytes, value: bytes) -> tuple[str, Fields]:
    return key.decode(), _record(USER_VALUE, value)


def _user_meta(_key: bytes, value: bytes) -> tuple[str, Fields]:
    return "users", _record(META_VALUE, value)


def _hold(key: bytes, value: bytes) -> tuple[str, Fields]:
    offset, until_ms = HOLD_VALUE.unpack(value)
    return _queue_and_name(key), {"offset": offset, "until_ms": until_ms}


def _queue_and_name(key: bytes) -> str:
    size = _ID_SIZE + _QUEUE_SIZE
    return f"{key[size:].decode()} {_queue_name(key[:_ID_SIZE], key[_ID_SIZE:size])}"


def _garbage(key: bytes, value: bytes) -> tuple[str, Fields]:
    (size,) = GARBAGE_SIZE.unpack_from(value)
    start = value[GARBAGE_SIZE.size : GARBAGE_SIZE.size + size]
    stop = value[GARBAGE_SIZE.size + size :]
    return str(KEY_U64.unpack(key)[0]), {"start": start.hex(), "stop": stop.hex()}


def _timer(key: bytes, value: bytes) -> tuple[str, Fields]:
    timer = decode_timer(b"." + key, value)
    return f"{timer.due_ms} {timer.number:x}", {
        "queue": f"{timer.topic_id.hex()}/{timer.queue}",
        "batch": timer.reference._asdict(),
        "stored_ms": timer.stored_ms,
        "message_id": f"{timer.producer_id.hex()}{timer.base_number:016x}",
        "has_keys": timer.has_keys,
        "origin": _origin_fields(timer.origin),
    }


def _origin_fields(origin: Origin | None) -> Fields | None:
    return None if origin is None else {**origin._asdict(), "topic_id": origin.topic_id.hex()}


def _schedule(key: bytes, value: bytes) -> tuple[str, Fields]:
    schedule = decode_schedule(key, value, 0)
    return f"{schedule.topic_id.hex()} {schedule.name}", {
        "schedule_id": schedule.schedule_id.hex(),
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "batch_size": len(schedule.batch),
    }


def _schedule_due(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, schedule_id = _ids(key, _ID_SIZE, _ID_SIZE)
    return f"{topic_id.hex()} {schedule_id.hex()}", {"last_due_ms": LAST_DUE.unpack(value)[0]}


def _timer_by_id(key: bytes, value: bytes) -> tuple[str, Fields]:
    due_ms, number = (KEY_U64.unpack(part)[0] for part in _ids(value, 8, 8))
    return key.hex(), {"due_ms": due_ms, "number": f"{number:x}"}


def _origin(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue, base = _ids(key, _ID_SIZE, _QUEUE_SIZE, KEY_U64.size)
    place, number, position, stored_ms, flags = ORIGIN_HEAD.unpack_from(value)
    return f"{_queue_name(topic_id, queue)} offset {KEY_U64.unpack(base)[0]}", {
        "place": place,
        "number": f"{number:x}",
        "position": position,
        "stored_ms": stored_ms,
        "has_keys": bool(flags),
        "origin": _origin_fields(decode_origin(value[ORIGIN_HEAD.size :])),
    }


def _pin(key: bytes, _value: bytes) -> tuple[str, Fields]:
    position, number = (KEY_U64.unpack(part)[0] for part in _ids(key, 8, 8))
    return f"{position} {number:x}", {"position": position}


def _copy(key: bytes, value: bytes) -> tuple[str, Fields]:
    (position,) = _ids(key, KEY_U64.size)
    return str(KEY_U64.unpack(position)[0]), {"copy": COPY_VALUE.unpack(value)[0]}


def _copy_place(key: bytes, value: bytes) -> tuple[str, Fields]:
    (copy,) = _ids(key, KEY_U64.size)
    return str(KEY_U64.unpack(copy)[0]), {"position": COPY_VALUE.unpack(value)[0]}


def _reference_at(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue, position, number = _ids(key, _ID_SIZE, _QUEUE_SIZE, 8, 8)
    base_offset, stored_ms = ORIGIN_AT_VALUE.unpack(value)
    name = f"{_queue_name(topic_id, queue)} position {KEY_U64.unpack(position)[0]} {number.hex()}"
    return name, {"base_offset": base_offset, "stored_ms": stored_ms}


_Decoder = Callable[[bytes, bytes], tuple[str, Fields]]
_DECODERS: Final[Mapping[Table, _Decoder]] = {
    Table.META_LOCAL: _meta,
    Table.META: _meta,
    Table.TOPIC: _topic,
    Table.TOPIC_DELETED: _topic_deleted,
    Table.QUEUE: _queue,
    Table.QUEUE_ROWS: _queue_rows,
    Table.KEY_DIRECTORY: _key_directory,
    Table.KEY_HASHES: _key_hashes,
    Table.MESSAGE_IDS: _message_ids,
    Table.GROUP_OFFSET: _group_offset,
    Table.PROGRESS: _progress,
    Table.FAILURE_WAVE: _failure_wave,
    Table.GROUP_USE: _group_use,
    Table.COMPACTED: _compacted,
    Table.USER: _user,
    Table.USER_META: _user_meta,
    Table.CONSUMER: _consumer,
    Table.GRANT: _grant,
    Table.GROUP_EPOCHS: _group_epochs,
    Table.PRODUCER: _producer,
    Table.PRODUCER_ACTIVITY: _producer_activity,
    Table.PRODUCER_QUEUE: _producer_queue,
    Table.PRODUCER_WINDOW: _producer_window,
    Table.HOLD: _hold,
    Table.GARBAGE: _garbage,
    Table.TIMER: _timer,
    Table.TIMER_BY_ID: _timer_by_id,
    Table.ORIGIN: _origin,
    Table.PIN: _pin,
    Table.REFERENCE_AT: _reference_at,
    Table.SCHEDULE: _schedule,
    Table.SCHEDULE_DUE: _schedule_due,
    Table.COPY: _copy,
    Table.COPY_PLACE: _copy_place,
}
assert set(_DECODERS) == set(Table), "every table has a decoder"
