"""The follower's half of replication: append messages in, acknowledgements out.

Owns: the checks of an append message before the core sees it, the clamp of its commit index (F1),
the stamp on its answer (F3), the back-off hint (L4), which answers wait for the disk (D4), and the
refusal of entries while the disk is full (I16). Log matching itself is the library's.
"""

import math
from typing import Final

from dledger.raft.context import Context
from dledger.raft.engine.journal import InvariantBroken, Run
from dledger.raft.gate import proven_commit
from dledger.raft.leadership.clocks import GroupClock
from dledger.raft.leadership.election import Elections
from dledger.raft.wire.messages import AppendAnswer, AppendRequest, TermNotice
from dledger.types import DiskRoom, FlushMode, MemberId
from dledger_proto.entry import CorruptEntry, EntryHeader, parse_entry_header

BELOW_HEAD_MISMATCHES: Final = 5
BELOW_HEAD_SECONDS: Final = 1.0
"""So many requests in a row, over so long, match nothing in a log that is below the leader's."""


class Following:
    """What a member does with the messages of a leader."""

    def __init__(self, context: Context, elections: Elections, clocks: GroupClock) -> None:
        self._context = context
        self._elections = elections
        self._clocks = clocks
        self.trim_floor = 0
        """No member may trim its log above this index, the leader said last."""
        self._mismatches = 0
        self._mismatched_since = math.inf
        self._mismatched_at = -math.inf
        self.has_matched = False
        """The newest request matched this member's log."""

    def on_append(self, sender: MemberId, message: AppendRequest) -> None:
        """Let the core match and append, and answer; CorruptEntry for entries that are damaged."""
        context = self._context
        engine = context.engine
        if message.term < engine.term:
            context.send(sender, TermNotice(engine.term))  # L9
            return
        if engine.is_leader and message.term == engine.term:
            raise InvariantBroken(f"{sender} and this member both lead term {engine.term}")
        run = None
        if message.frames is not None and context.log.disk_room is not DiskRoom.FULL:
            run = parse_run(message)
        self._elections.leader_heard(sender)
        result = engine.append(
            sender,
            term=message.term,
            prev_index=message.prev_index,
            prev_term=message.prev_term,
            run=run,
            commit_index=proven_commit(
                message.commit_index, message.prev_index, None if run is None else run.last
            ),
            now=context.now,
        )
        self._note_match(matched=result.matched)
        self._clocks.leader_says(message.wall_ms, message.jump_ms)
        self.trim_floor = message.trim_floor
        if message.answer or not result.matched:
            self._answer(sender, message, result.next_index - 1 if result.matched else None, run)

    def _note_match(self, *, matched: bool) -> None:
        now = self._context.now
        self.has_matched = matched
        if matched:
            self._mismatches = 0
            self._mismatched_since = math.inf
            return
        self._mismatches += 1
        self._mismatched_at = now
        self._mismatched_since = min(self._mismatched_since, now)

    @property
    def is_below_head(self) -> bool:
        """Tell whether the leader's log has nothing any more that follows this member's.

        A leader that still has it finds the place within a round trip for each term that differs.
        One that trimmed it sends heartbeats that match nothing, without end.
        """
        now = self._context.now
        return (
            self._mismatches >= BELOW_HEAD_MISMATCHES
            and now - self._mismatched_since >= BELOW_HEAD_SECONDS
            and now - self._mismatched_at < BELOW_HEAD_SECONDS
        )

    def _answer(
        self, sender: MemberId, message: AppendRequest, match: int | None, run: Run | None
    ) -> None:
        """Acknowledge what is on disk. An answer about newer entries waits for the disk."""
        context = self._context
        covered = context.durability.covered_index
        hint_index = hint_term = 0
        log_index = 0
        if match is None:
            hint_index, hint_term = context.journal.conflict_hint(
                message.prev_index, message.prev_term
            )
        elif run is None:
            match = min(match, covered)  # a heartbeat's answer never waits for the log
        else:
            log_index = match
        answer = AppendAnswer(
            message.number,
            message.term,
            context.engine.term,
            match is not None,
            match or 0,
            hint_index,
            hint_term,
            context.clock.wall_ms(),
            quarantined=context.quarantined,
            disk_room=context.log.disk_room,
            disk_hangs=context.durability.hangs(context.now),
            unsynced=context.settings.flush is FlushMode.ASYNC,
        )
        version = context.durability.version
        if version <= context.durability.durable_version and log_index <= covered:
            context.send(sender, answer)
            return
        context.gate.hold(
            sender, answer, term=message.term, hard_version=version, log_index=log_index
        )


def parse_run(message: AppendRequest) -> Run:
    """Return the entries of an append message; CorruptEntry unless they follow `prev` gaplessly."""
    frames = message.frames
    assert frames is not None, "only messages with entries have a run"
    headers: list[tuple[EntryHeader, int]] = []
    offset = 0
    index = message.prev_index
    term = message.prev_term
    size = len(frames)
    while offset < size:
        header = parse_entry_header(frames, offset)
        index += 1
        if header.index != index or not term <= header.term <= message.term:
            raise CorruptEntry(
                f"entry {header.index}@{header.term} where {index}@{term}..{message.term} follows"
            )
        if header.size > size - offset:
            raise CorruptEntry(f"entry {index} of {header.size} bytes, {size - offset} are there")
        headers.append((header, offset))
        term = header.term
        offset += header.size
    return Run(frames, headers)
