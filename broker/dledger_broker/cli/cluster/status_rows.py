"""The rows of `dledger status`: what members said, made into one row for each. Pure.

Owns: which members a group has, whom of them to believe. Not: asking them (`status.py`).

- A group's members are those that the name server lists or misses, and those that any member which
  answers has in its configuration. Each has a row, whether it answers or not.
- A member is shown as leader only when it says so itself. What others say of it appears under
  `reason`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dledger_broker.cli.values import shown_time
from dledger_proto.errors import DledgerError
from dledger_proto.v1.broker_pb2 import MemberProgress, StatusReply
from dledger_proto.v1.routes_pb2 import GroupRoute

NO_ANSWER: Final = "no answer"
UNREGISTERED: Final = "not registered at the name server"

LOG_FIELDS: Final = (
    "first_index", "last_index", "durable_index", "first_position", "last_position",
)  # fmt: skip
SCRUB_FIELDS: Final = (
    "started_ms", "ended_ms", "read_bytes", "total_bytes", "found", "mended", "left",
    "found_ever", "mended_ever",
)  # fmt: skip
UNKNOWN: Final = (
    "term", "leader", "match_index", "commit", "applied", "lag", "flush", "clock_offset_ms",
)  # fmt: skip
"""Columns that are empty for a silent member."""

Answer = StatusReply | DledgerError


@dataclass(frozen=True, slots=True)
class Known:
    """A member that a group is known to have."""

    name: str
    address: str
    """Where to ask it; empty: it was never heard of."""
    listed: bool
    """The name server lists it."""
    silent_ms: int = 0
    """For so long the name server has not heard it; 0: nothing is known."""


def members_of(route: GroupRoute) -> dict[str, Known]:
    """Return the members that a name server knows of, by name."""
    known = {
        each.member: Known(each.member, each.address, False, each.silent_ms)
        for each in route.silent
    }
    return known | {each.member: Known(each.member, each.address, True) for each in route.members}


def others_of(known: Mapping[str, Known], answers: Mapping[str, Answer]) -> dict[str, Known]:
    """Return the members that only those which answered know of, by name."""
    return {
        progress.member: Known(progress.member, progress.address, False)
        for reply in _replies(answers)
        for progress in reply.members
        if progress.member not in known or not known[progress.member].address
    }


def group_rows(
    route: GroupRoute, known: Mapping[str, Known], answers: Mapping[str, Answer], now_ms: int
) -> list[dict[str, object]]:
    """Return the rows of a group, by name; `now_ms` is the wall clock here."""
    leader = max(
        (reply for reply in _replies(answers) if reply.role == "leader"),
        key=lambda reply: reply.term,
        default=None,
    )
    rows: list[dict[str, object]] = []
    for name in sorted(known):
        member, answer = known[name], answers.get(name)
        row = _fields(route, member)
        if isinstance(answer, StatusReply):
            row |= _answered(member, answer, answers, leader)
        else:
            row |= _silent(member, answer, answers, now_ms)
            seen = _seen_by(leader, name)
            row |= _progress(seen.match_index if seen is not None else None, leader)
            if seen is not None and seen.HasField("clock_offset_ms"):
                row["clock_offset_ms"] = seen.clock_offset_ms  # as the leader heard it last
        rows.append(row)
    return rows


def is_led(rows: list[dict[str, object]]) -> bool:
    """Tell whether each group of the rows has a member that says it leads."""
    groups = {row["group"] for row in rows}
    return groups == {row["group"] for row in rows if row["role"] == "leader"}


def _replies(answers: Mapping[str, Answer]) -> Iterator[StatusReply]:
    return (answer for answer in answers.values() if isinstance(answer, StatusReply))


def _fields(route: GroupRoute, member: Known) -> dict[str, object]:
    """Return the columns in their order, as of a member of which nothing is known."""
    return {
        "group": route.group,
        "control_group": route.control_group,
        "member": member.name,
        "address": member.address or None,
        "role": NO_ANSWER,
        **dict.fromkeys(UNKNOWN),
        "reason": "",
    }


def _answered(
    member: Known,
    reply: StatusReply,
    answers: Mapping[str, Answer],
    leader: StatusReply | None,
) -> dict[str, object]:
    named = answers.get(reply.leader)
    confirmed = isinstance(named, StatusReply) and named.role == "leader"
    own, reasons = (reply.durable_index if reply.role == "leader" else None), [reply.reason]
    seen = _seen_by(leader, member.name)
    if leader is not None and seen is not None:
        own = seen.match_index if own is None else own
        if seen.refused and not reply.reason:
            reasons.append(f"{leader.member} refused: {seen.refused}")
    if reply.topics_problem:
        reasons.append(f"topics are not followed: {reply.topics_problem}")
    if reply.leader and not confirmed:
        reasons.append(f"it believes that {reply.leader} leads, which does not say so itself")
    if not member.listed:
        reasons.append(UNREGISTERED)
    return {
        "role": reply.role,
        "term": reply.term,
        "leader": reply.leader if confirmed else None,
        **_progress(own, leader),
        "commit": reply.commit_index,
        "applied": reply.applied_index,
        "flush": reply.flush_mode,
        "reason": "; ".join(filter(None, reasons)),
        "believed_leader": reply.leader or None,
        **{name: getattr(reply, name) for name in LOG_FIELDS},
        "digest": reply.digest.hex(),
        "format_level": reply.format_level,
        "group_id": reply.group_id.hex(),
        "incarnation": reply.incarnation,
        "clock_offset_ms": reply.clock_offset_ms,
        "clock_off": reply.clock_off,
        "version": reply.version,
        "head_kept": list(reply.head_kept),
        "endangered": list(reply.endangered),
        "disk_free_bytes": reply.disk_free_bytes,
        "security": reply.security or None,
        "scrub": _scrub(reply),
    }


def _scrub(reply: StatusReply) -> dict[str, object] | None:
    """Return what a member says of its newest scrub; None: there was none."""
    scrub = reply.scrub
    if not (scrub.number or scrub.found_ever):
        return None
    return {name: getattr(scrub, name) for name in SCRUB_FIELDS}


def _silent(
    member: Known, error: DledgerError | None, answers: Mapping[str, Answer], now_ms: int
) -> dict[str, object]:
    silent_ms = _silence(member, answers)
    since_ms = now_ms - silent_ms if silent_ms else None
    reasons: list[str] = []
    if since_ms is not None:
        reasons.append(f"no answer since {shown_time(since_ms)}")
    if error is not None:
        reasons.append(error.detail or str(error))
    elif not member.address:
        reasons.append("never heard of")
    if not member.listed:
        reasons.append(UNREGISTERED)
    return {"reason": "; ".join(reasons), "silent_since_ms": since_ms}


def _silence(member: Known, answers: Mapping[str, Answer]) -> int:
    """Return for how many milliseconds no process has heard a member; 0: not known.

    A link that is up is no sign of life: the link of a paused process is up as well.
    """
    told = [progress.silent_ms for progress in _told_of(member.name, answers)]
    return min(filter(None, (*told, member.silent_ms)), default=0)


def _told_of(name: str, answers: Mapping[str, Answer]) -> Iterator[MemberProgress]:
    for reply in _replies(answers):
        yield from (progress for progress in reply.members if progress.member == name)


def _seen_by(leader: StatusReply | None, member: str) -> MemberProgress | None:
    """Return what the leader knows of a member."""
    members = leader.members if leader is not None else ()
    return next((progress for progress in members if progress.member == member), None)


def _progress(match_index: int | None, leader: StatusReply | None) -> dict[str, object]:
    lag = None
    if leader is not None and match_index is not None:
        lag = max(leader.last_index - match_index, 0)
    return {"match_index": match_index, "lag": lag}
