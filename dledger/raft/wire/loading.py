"""The entries of an append request, read from the log just before the request is sent.

Owns: that a request carries the very entries that it names, each of them sound (I15), or is not
sent. A request that a leader makes holds bytes when the log's tail has them, else a span of the
log. Between the making and the sending the log may have been cut or trimmed.
"""

from dataclasses import replace

from dledger.log.commit_log import CommitLog
from dledger.log.errors import SpanGone
from dledger.raft.wire.messages import AppendRequest, Message
from dledger.types import AppendPayload, Buffer, LogIndex
from dledger_proto.entry import CorruptEntry, decode_entry


def payload_of(message: Message) -> AppendPayload | None:
    """Return what an append request carries; None of a heartbeat and of other messages."""
    return message.payload if isinstance(message, AppendRequest) else None


def with_data(message: Message, data: bytes) -> Message:
    """Return an append request whose entries are `data`, read from its payload's span."""
    payload = payload_of(message)
    assert isinstance(message, AppendRequest), "only append requests carry entries"
    assert payload is not None, "it carries none"
    return replace(message, payload=replace(payload, buffers=(data,)))


def load(message: Message, log: CommitLog) -> Message | None:
    """Return an append request with its entries as bytes; other messages as they are. Any thread.

    Blocks when the entries lie on disk; each byte that is read passes its checksum (I15). None when
    something else lies there: then there is nothing to send, and `check_held` finds out why.
    DamagedLog when the file is gone or too short.
    """
    payload = payload_of(message)
    if payload is None or payload.buffers is not None:
        return message
    data = read_payload(payload, log)
    return None if data is None else with_data(message, data)


def read_payload(payload: AppendPayload, log: CommitLog) -> bytes | None:
    """Return the entries of a payload that lie on disk, each byte checked; see `load`."""
    try:
        data = log.read_span(payload.span)
        _check_entries(data, payload)
    except (SpanGone, CorruptEntry):
        return None
    return data


def _check_entries(data: Buffer, payload: AppendPayload) -> None:
    """Raise CorruptEntry unless these are the payload's entries, whole, one after the other."""
    index, at, previous_crc = int(payload.first), 0, None
    while at < len(data):
        header = decode_entry(data, at, check_payloads=True).header
        follows = previous_crc in (None, header.previous_crc)
        here = header.index == index and header.position == payload.span.position + at
        if not (follows and here) or (at == 0 and header.term != payload.term_of_first):
            raise CorruptEntry(f"entry {index} is expected, there is {header.describe()}")
        index, at, previous_crc = index + 1, at + header.size, header.header_crc
    if index != payload.last + 1:
        raise CorruptEntry(f"the entries end before {index}, not behind {payload.last}")


def check_held(message: Message, log: CommitLog) -> None:
    """Find out, on the log's own thread, why `load` gave nothing: DamagedLog names the place.

    Returns when the log has changed meanwhile: a suffix was cut, the head was trimmed. Then the
    leader finds out by its next heartbeat what to send instead.
    """
    payload = payload_of(message)
    assert payload is not None, "it carries no entries"
    check_payload_held(payload, log)


def check_payload_held(payload: AppendPayload, log: CommitLog) -> None:
    """Find out why `read_payload` gave nothing; see `check_held`."""
    index = payload.first
    try:
        while index <= payload.last:
            found = log.entries(index, payload.last, payload.size)
            index = LogIndex(found[-1].ref.index + 1)
    except SpanGone:
        return
