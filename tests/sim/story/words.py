"""The rows of a story in words.

Owns: how a fault, an entry, a queue and a client's operation are named to a reader.
"""

from typing import Final

from tests.sim.clients.oracle import Send
from tests.sim.faults.fault import Strike
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.story.story import Kind, Row

OUTCOMES: Final = {"ok": "ok", "fail": "FAILED", "info": "UNKNOWN"}


def describe(row: Row) -> str:
    """Return what happened, without time and lane."""
    match row.kind, row.what:
        case Kind.ROLE, (str(role), int(term)):
            return f"{row.who} leads term {term}" if role == "leader" else _role(row.who, role)
        case Kind.FAULT, (Strike() as strike,):
            return f"#{strike.name} {strike.kind} {strike.detail}"
        case Kind.FAULT_END, (Strike() as strike,):
            rest = f", {strike.open_ends} more ends to come" if row.marks is None else ""
            return f"end of #{strike.name} {strike.kind} {strike.detail}{rest}"
        case Kind.CUT_OFF, (first, last):
            return f"{row.who} cuts off entries {_span(first, last)}"
        case Kind.COMMIT, (first, last, term):
            return f"committed {_span(first, last)} of term {term}, first at {row.who}"
        case Kind.CLIENT, ("sent", str(outcome), Send() as send, *rest):
            return f"{row.who} {_ended(row, send, outcome, rest)}"
        case Kind.CLIENT, ("send", Send() as send):
            return f"{row.who} sends {_records(send)}"
        case Kind.CLIENT, (str(what), *rest):
            return f"{row.who} {what} {' '.join(_value(each) for each in rest)}".rstrip()
        case _:
            return str(row.what[0])


def _role(who: str, role: str) -> str:
    return f"{who} is {role}"


def _span(first: object, last: object) -> str:
    return f"{first}" if first == last else f"{first}..{last}"


def _records(send: Send) -> str:
    records = "1 record" if send.record_count == 1 else f"{send.record_count} records"
    return f"{records} to {queue_name(send.queue)}"


def _ended(row: Row, send: Send, outcome: str, rest: list[object]) -> str:
    how = "as a repeat" if rest == ["offset", -1] else " ".join(_value(each) for each in rest)
    asked = f"asked at {send.invoked:.3f}, {1e3 * (row.time - send.invoked):.0f} ms before"
    return f"{_records(send)}: {OUTCOMES[outcome]} {how}".rstrip() + f" ({asked})"


def queue_name(queue: QueueKey) -> str:
    """Return a queue's number behind the first digits of its topic's id."""
    topic, number = queue
    return f"{topic.hex()[:4]}/{number}"


def _value(value: object) -> str:
    match value:
        case (bytes(topic), int(number)):
            return queue_name((topic, number))
        case bytes():
            return value.hex()[:8]
        case _:
            return str(value)
