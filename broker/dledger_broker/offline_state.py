"""The LMDB of a stopped member, row by row, read only and without a lock file.

Owns: turning rows into words. The layouts are those drawn in `dledger.state`'s modules; a row that
does not fit its layout is shown as bytes with a problem, and the next row follows.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb

from dledger.state.queues import NO_POSITION, ROW
from dledger.state.tables import PREFIX, Table, after
from dledger.state.topics import decode_topic

ROWS_SHOWN_PER_BLOCK: Final = 3
"""Of a block of consume queue rows, the first ones; the rest is counted."""
_QUEUE_KEY: Final = struct.Struct(">16sI")
_BLOCK_KEY: Final = struct.Struct(">16sIQ")
_QUEUE: Final = struct.Struct("<qqQQI")
_PRODUCER: Final = struct.Struct("<IQ")
_ACTIVITY_KEY: Final = struct.Struct(">Q16s")
_PRODUCER_QUEUE_KEY: Final = struct.Struct(">16s16sI")
_PRODUCER_QUEUE: Final = struct.Struct("<IqQI")
_WINDOW_KEY: Final = struct.Struct(">16s16sIQ")
_WINDOW_ROW: Final = struct.Struct("<qqI")
_APPLIED: Final = struct.Struct("<QQqQ32s")
_DIRECTORY: Final = struct.Struct("<QQHH")
_RUN_KEY: Final = struct.Struct(">16sBQ24s")
_LEVEL_0_KEY: Final = struct.Struct(">16sBQ")
_KEY_ENTRY_SIZE: Final = 24
_ID_ROW: Final = struct.Struct("<QIIq16s")
_TWO: Final = struct.Struct("<qq")

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
    """Yield up to `limit` rows of each table (or of one); OSError when there is no database.

    The rows are those of the newest whole commit. Nothing is written, not even a lock.
    """
    if not (folder / "data.mdb").exists():
        raise FileNotFoundError(2, os.strerror(2), str(folder / "data.mdb"))
    try:
        environment = lmdb.open(
            str(folder), readonly=True, lock=False, create=False, readahead=False, max_dbs=0
        )
    except lmdb.Error as error:
        raise OSError(5, f"cannot be opened: {error}") from error
    try:
        _check_size(folder / "data.mdb", environment)
        with environment.begin() as transaction:
            for kind in [table] if table is not None else list(Table):
                yield from _rows(transaction, kind, limit)
    except lmdb.Error as error:
        raise OSError(5, f"cannot be read on: {error}") from error
    finally:
        environment.close()


def _check_size(path: Path, environment: lmdb.Environment) -> None:
    """Refuse a file that was cut short: LMDB maps it, and reading behind its end is a SIGBUS."""
    needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    found = path.stat().st_size
    if found < needed:
        raise OSError(5, f"data.mdb has {found} bytes, its newest commit needs {needed}")


def _rows(transaction: lmdb.Transaction, table: Table, limit: int) -> Iterator[StateRow]:
    prefix = PREFIX[table]
    stop = after(prefix)
    with transaction.cursor() as cursor:
        if not cursor.set_range(prefix):
            return
        for count, (found_key, value) in enumerate(cursor.iternext()):
            key = bytes(found_key)
            if key >= stop or count == limit:
                return
            yield describe_row(table, key, bytes(value))


def describe_row(table: Table, key: bytes, value: bytes) -> StateRow:
    """Return a row in words; what cannot be decoded as bytes, with the reason."""
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
        "layout": [f"{part.group}:{part.write_queues}" for part in topic.layout],
        "layout_version": topic.layout_version,
        "read_queues": topic.read_queues,
        "permission": topic.permission,
        "control_index": topic.control_index,
        "deleted": topic.deleted,
    }


def _queue(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue = _QUEUE_KEY.unpack(key)
    minimum, maximum, first_position, block_base, block_rows = _QUEUE.unpack(value)
    return f"{topic_id.hex()}/{queue}", {
        "minimum": minimum,
        "maximum": maximum,
        "first_position": None if first_position == NO_POSITION else first_position,
        "block_base": block_base,
        "block_rows": block_rows,
    }


def _queue_rows(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue, base = _BLOCK_KEY.unpack(key)
    spans = [
        f"offset {base_offset} records {first}+{count} at {position} size {size} time {time_ms}"
        for _, first, count, size, base_offset, position, time_ms in ROW.iter_unpack(value)
    ]
    more = len(spans) - ROWS_SHOWN_PER_BLOCK
    shown = spans[:ROWS_SHOWN_PER_BLOCK] + ([f"and {more} more"] if more > 0 else [])
    return f"{topic_id.hex()}/{queue} from {base}", {"batches": len(spans), "rows": shown}


def _producer(key: bytes, value: bytes) -> tuple[str, Fields]:
    epoch, step = _PRODUCER.unpack(value)
    return key.hex(), {"epoch": epoch, "active_step": step}


def _producer_activity(key: bytes, _value: bytes) -> tuple[str, Fields]:
    step, producer_id = _ACTIVITY_KEY.unpack(key)
    return f"{step} {producer_id.hex()}", {"producer": producer_id.hex()}


def _producer_queue(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, topic_id, queue = _PRODUCER_QUEUE_KEY.unpack(key)
    epoch, next_sequence, block, rows = _PRODUCER_QUEUE.unpack(value)
    return f"{producer_id.hex()} {topic_id.hex()}/{queue}", {
        "epoch": epoch,
        "next_sequence": next_sequence,
        "block": block,
        "rows": rows,
    }


def _producer_window(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, topic_id, queue, block = _WINDOW_KEY.unpack(key)
    rows = list(_WINDOW_ROW.iter_unpack(value))
    fields: dict[str, object] = {"batches": len(rows)}
    if rows:
        fields["sequences"] = f"{rows[0][0]} to {rows[-1][0] + rows[-1][2] - 1}"
        fields["offsets"] = f"{rows[0][1]} to {rows[-1][1] + rows[-1][2] - 1}"
    return f"{producer_id.hex()} {topic_id.hex()}/{queue} block {block}", fields


def _meta(key: bytes, value: bytes) -> tuple[str, Fields]:
    name = key.decode()
    if name == "applied":
        index, term, time_ms, position, digest = _APPLIED.unpack(value)
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
        return name, {"format_level": int.from_bytes(value, "little")}
    return name, {"bytes": value.hex()}


def _key_directory(key: bytes, value: bytes) -> tuple[str, Fields]:
    next_run, first_block, runs, merges = _DIRECTORY.unpack_from(value)
    return key.hex(), {
        "next_run": next_run,
        "first_block": first_block,
        "runs": runs,
        "merges": merges,
    }


def _key_hashes(key: bytes, value: bytes) -> tuple[str, Fields]:
    if len(key) == _LEVEL_0_KEY.size:
        topic_id, _, block = _LEVEL_0_KEY.unpack(key)
        return f"{topic_id.hex()} level 0 block {block}", {"bytes": len(value)}
    topic_id, _, run, first = _RUN_KEY.unpack(key)
    count, rest = divmod(len(value), _KEY_ENTRY_SIZE)
    if rest:
        raise ValueError(f"{len(value)} bytes are no whole entries of {_KEY_ENTRY_SIZE}")
    return f"{topic_id.hex()} run {run} from {first.hex()}", {"entries": count}


def _message_ids(key: bytes, value: bytes) -> tuple[str, Fields]:
    producer_id, bucket = key[:16], key[16:]
    if not bucket:
        return producer_id.hex(), {"records_max": int.from_bytes(value, "little")}
    rows = [
        f"{base}+{count} at {topic_id.hex()}/{queue} offset {offset}"
        for base, count, queue, offset, topic_id in _ID_ROW.iter_unpack(value)
    ]
    return f"{producer_id.hex()} bucket {int.from_bytes(bucket, 'big')}", {"numbers": rows}


def _group_offset(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue = _QUEUE_KEY.unpack_from(key)
    offset, time_ms = _TWO.unpack_from(value)
    return f"{key[_QUEUE_KEY.size :].decode()} {topic_id.hex()}/{queue}", {
        "offset": offset,
        "time_ms": time_ms,
        "metadata": value[_TWO.size :].decode(),
    }


def _hold(key: bytes, value: bytes) -> tuple[str, Fields]:
    topic_id, queue = _QUEUE_KEY.unpack_from(key)
    offset, until_ms = _TWO.unpack(value)
    return f"{key[_QUEUE_KEY.size :].decode()} {topic_id.hex()}/{queue}", {
        "offset": offset,
        "until_ms": until_ms,
    }


def _garbage(key: bytes, value: bytes) -> tuple[str, Fields]:
    size = int.from_bytes(value[:2], "little")
    return str(int.from_bytes(key, "big")), {
        "start": value[2 : 2 + size].hex(),
        "stop": value[2 + size :].hex(),
    }


_Decoder = Callable[[bytes, bytes], tuple[str, Fields]]
_DECODERS: Final[Mapping[Table, _Decoder]] = {
    Table.META_LOCAL: _meta,
    Table.META: _meta,
    Table.TOPIC: _topic,
    Table.QUEUE: _queue,
    Table.QUEUE_ROWS: _queue_rows,
    Table.KEY_DIRECTORY: _key_directory,
    Table.KEY_HASHES: _key_hashes,
    Table.MESSAGE_IDS: _message_ids,
    Table.GROUP_OFFSET: _group_offset,
    Table.PRODUCER: _producer,
    Table.PRODUCER_ACTIVITY: _producer_activity,
    Table.PRODUCER_QUEUE: _producer_queue,
    Table.PRODUCER_WINDOW: _producer_window,
    Table.HOLD: _hold,
    Table.GARBAGE: _garbage,
}
assert set(_DECODERS) == set(Table), "every table is decoded"
