"""The leader's half of replication: what goes to whom, and what comes of the answers.

Owns: heartbeats, the pump that keeps requests in flight, back-off after a mismatch (L4), notices of
the commit index, the trim floor, and which answers of followers reach the core (F3, D18). The
library's own sending is off, because it sends everything in flight again on each acknowledgement.
Does not own the bytes (the log has them), nor how a follower's progress moves (`progress.py`).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from dledger.log.errors import DamagedLog
from dledger.raft.api import PeerStatus
from dledger.raft.context import Context
from dledger.raft.engine.journal import InvariantBroken, newest_up_to_term
from dledger.raft.leadership.clocks import READING_SECONDS_MAX, GroupClock
from dledger.raft.replication.progress import Pace, Progress
from dledger.raft.wire.messages import AppendAnswer, AppendRequest
from dledger.types import AppendPayload, DiskRoom, FlushMode, LogIndex, MemberId, Position
from dledger_proto.limits import FRAME_SIZE_TARGET

COMMIT_NOTICE_SHARE: Final = 0.05
"""A new commit index waits this share of a heartbeat for an append message to travel with."""
QUIET_HEARTBEAT_SHARE: Final = 0.41
"""The period of heartbeats of an idle group, as a share of the shortest election timeout. An idle
group costs its wakes. A follower misses two of these heartbeats before it campaigns."""


class Replication:
    """What a leader knows of the others. Only the numbers of requests outlive a reign."""

    def __init__(self, context: Context, clocks: GroupClock) -> None:
        self._context = context
        self._clocks = clocks
        self.peers = {peer: Progress(peer) for peer in context.peers}
        self._heartbeat_at = math.inf
        self._notice_at = math.inf
        self._beaten_at = -math.inf
        self._floor = 0
        self._began_at = -math.inf
        """When this reign began."""
        self.freeing_index = 0
        """The newest entry that may free space: up to it a member whose disk is low is filled."""
        self.room = DiskRoom.ENOUGH
        """What a majority has room for. LOW: a majority needs members whose disk is low, and only
        writes that free space are taken. FULL: it needs members whose disk is full, and nothing is
        taken. Entries that were taken before go to members with a low disk, too."""
        self.on_answer: Callable[[MemberId, int], None] = lambda _peer, _number: None
        """Called with peer and request number for each counted answer of this reign (barriers)."""
        self.on_forgotten: Callable[[MemberId, str], None] = lambda _peer, _what: None
        """Called with peer and reason when a follower lost what it acknowledged (D18)."""

    # A reign.

    def begin_reign(self) -> None:
        """Find out where everybody is, at once."""
        context = self._context
        self._floor = 0
        self._began_at = context.now
        # What the leaders before proposed to free space is not known here, but it is in the log.
        self.freeing_index = context.log.last_index
        self.room = DiskRoom.ENOUGH
        for progress in self.peers.values():
            # The core has appended its no-op: before that the logs may agree.
            progress.begin_reign(context.log.last_index - 1)
        self._heartbeat_at = context.now
        self._notice_at = math.inf

    def end_reign(self) -> None:
        """Stop sending."""
        self._clocks.end_reign()
        self._heartbeat_at = self._notice_at = math.inf

    def next_deadline(self) -> float:
        """Return when `tick` has something to send."""
        return min(self._heartbeat_at, self._notice_at)

    def tick(self) -> None:
        """Send what is due."""
        context = self._context
        if not context.engine.is_leader:
            return
        if context.now >= self._heartbeat_at:
            self.heartbeat()
        elif context.now >= self._notice_at:
            self._notice_at = math.inf
            for progress in self.peers.values():
                if progress.commit_sent < context.engine.commit_index:
                    self._send(progress, None, answer=False)

    def _all_know_commit(self) -> bool:
        commit_index = self._context.engine.commit_index
        return all(progress.commit_sent >= commit_index for progress in self.peers.values())

    def heartbeat(self) -> None:
        """Send everybody a request now; entries if a probe or the window allows, else none."""
        settings = self._context.settings
        self._beaten_at = self._context.now
        period = settings.heartbeat
        if self._is_quiet():
            period = max(period, QUIET_HEARTBEAT_SHARE * settings.election_timeout_min)
        self._heartbeat_at = self._beaten_at + period
        self._floor = self.trim_floor()
        self._clocks.watch()
        self._weigh_room()
        for progress in self.peers.values():
            progress.ask_clock(self._beaten_at, READING_SECONDS_MAX)
            progress.retry_probe()
            if not self._pump(progress):
                self._send(progress, None)

    def _is_quiet(self) -> bool:
        """Tell whether every follower with a link answered, has everything, knows it committed."""
        context = self._context
        last_index = context.log.last_index
        return context.engine.commit_index == last_index and all(
            progress.match == progress.commit_sent == last_index
            and progress.answered == progress.number
            for progress in self.peers.values()
            if progress.member in context.outbox.up
        )

    def commit_moved(self, expected_until: float) -> None:
        """Let followers know soon: with the next entries, or by a notice.

        While callers are expected, entries are likely to follow, and the notice waits for them. An
        earlier notice would make followers apply while the leader answers callers, and both would
        be slower. With the entries followers apply while the leader has nothing to do.
        """
        now = self._context.now
        from_when = now if expected_until == math.inf else max(now, expected_until)
        patience = COMMIT_NOTICE_SHARE * self._context.settings.heartbeat
        self._notice_at = min(self._notice_at, from_when + patience)

    def commit_may_move(self) -> bool:
        """Tell whether any follower holds more than is committed; else the core need not count."""
        commit_index = self._context.engine.commit_index
        return not self.peers or any(each.match > commit_index for each in self.peers.values())

    # Sending.

    def pump(self) -> None:
        """Send entries to everybody whose window is open."""
        context = self._context
        if context.engine.is_leader:
            last_index = context.log.last_index
            for progress in self.peers.values():
                if progress.next <= last_index:
                    self._pump(progress)
            if self._notice_at < math.inf and self._all_know_commit():
                self._notice_at = math.inf
            if last_index > context.engine.commit_index:
                # Not quiet any more.
                next_at = self._beaten_at + context.settings.heartbeat
                self._heartbeat_at = min(self._heartbeat_at, max(next_at, context.now))

    def _pump(self, progress: Progress) -> bool:
        """Send entries while the window allows; True when something left."""
        context = self._context
        log = context.log
        if progress.member not in context.outbox.up or progress.next < log.first_index:
            return False  # below the first entry: it was trimmed, only a refill can help
        sent = False
        window = context.settings.inflight_bytes_max
        last: int = log.last_index
        if progress.disk_room is DiskRoom.LOW and self.room is DiskRoom.ENOUGH:
            last = min(last, self.freeing_index)
        while progress.next <= last and progress.may_send(window):
            try:
                payload = log.payload(LogIndex(progress.next), FRAME_SIZE_TARGET)
            except DamagedLog as damage:
                if not context.is_mended(damage):
                    raise
                break
            self._send(progress, payload)
            sent = True
        return sent

    def _send(
        self, progress: Progress, payload: AppendPayload | None, *, answer: bool = True
    ) -> None:
        context = self._context
        if not context.engine.is_leader:
            raise InvariantBroken(f"a request to {progress.member} by a member that does not lead")
        if progress.member not in context.outbox.up:
            return
        prev_index = progress.next - 1
        prev_term = context.log.term_at(LogIndex(prev_index))
        if prev_term is None:
            # The entry was trimmed. The heartbeat keeps the follower quiet, and matches nothing.
            prev_index = context.log.last_index
            prev_term = context.log.last_term
        commit_index = context.engine.commit_index
        number = progress.sent(
            None if payload is None else payload.last, 0 if payload is None else payload.size
        )
        progress.commit_sent = commit_index
        context.send(
            progress.member,
            AppendRequest(
                number,
                context.engine.term,
                prev_index,
                prev_term,
                commit_index,
                self._floor,
                self._clocks.group_ms() or 0,
                self._clocks.jump_ms,
                answer=answer,
                payload=payload,
            ),
        )

    # Answers.

    def on_append_answer(self, sender: MemberId, message: AppendAnswer) -> bool:
        """Take an answer; True when the commit index may move by it."""
        context = self._context
        engine = context.engine
        progress = self.peers[sender]
        if not engine.is_leader or message.term != engine.term:
            return False  # answers an older reign (F3)
        if message.number > progress.number or message.match_index > context.log.last_index:
            context.trace.event("dropped", sender=sender, message="append-answer", reason="unasked")
            return False
        progress.answered = max(progress.answered, message.number)
        progress.heard_at = context.now
        progress.quarantined = message.quarantined
        progress.disk_hangs = message.disk_hangs
        progress.unsynced = message.unsynced
        timely = progress.clock_read_within(message.number, context.now, READING_SECONDS_MAX)
        self._clocks.reading(sender, message.wall_ms, timely=timely)
        if message.disk_room is DiskRoom.FULL and progress.disk_room is not DiskRoom.FULL:
            progress.lost()  # it throws entries away; send again when it has room
        progress.disk_room = message.disk_room
        moved = False
        if message.matched:
            moved = progress.matched(message.number, message.match_index)
        elif progress.forgets(message.number, message.hint_index) and self._forgotten(
            progress, message
        ):
            return False
        else:
            self._back_off(progress, message)
        self._weigh_room()
        self._pump(progress)
        if message.quarantined:
            return False  # its answer moves replication, but counts for nothing else (D18)
        engine.heard(sender, progress.match if message.matched else None, context.now)
        self.on_answer(sender, message.number)
        return moved and progress.match > engine.commit_index

    def _forgotten(self, progress: Progress, message: AppendAnswer) -> bool:
        """Forget the acknowledgements of a follower that lost their entries.

        Return True when the follower's life is not believed any more. `flush: async` allows a power
        cut to take entries: then the follower is filled again from where it is.
        """
        acknowledged, hint = progress.match, message.hint_index
        if self._context.settings.flush is FlushMode.ASYNC:
            self.forget_data(progress.member)
            self._context.trace.event(
                "acknowledgement_lost", peer=progress.member, index=acknowledged, held=hint
            )
            return False
        self.on_forgotten(
            progress.member,
            f"it acknowledged entry {acknowledged}, but its log agrees only up to {hint}",
        )
        return True

    def _back_off(self, progress: Progress, message: AppendAnswer) -> None:
        """Go on from the newest entry that may agree: a whole term at a step (L4)."""
        context = self._context
        log = context.log
        hint = min(message.hint_index, log.last_index)
        if hint < log.first_index - 1:
            # The entries it needs were trimmed here. It gets heartbeats only, and is refilled.
            progress.is_below_head = True
            progress.mismatched(message.number, hint + 1)
            return
        low = max(progress.match, log.first_index - 1)
        low = newest_up_to_term(log, low, hint, message.hint_term)
        if progress.mismatched(message.number, low + 1) and not self._pump(progress):
            self._send(progress, None)

    def _weigh_room(self) -> None:
        """Find out what a majority has room for (I16).

        Silent, hanging or lagging followers do not count towards the majority with room. Without a
        majority of the others, room is not what the group lacks.
        """
        context = self._context
        before, self.room = self.room, DiskRoom.ENOUGH
        if all(each.disk_room is DiskRoom.ENOUGH for each in self.peers.values()):
            return
        there = Counter({DiskRoom.ENOUGH: 1})  # this member: its own room is checked apart
        for progress in self.peers.values():
            if self._is_there(progress) and (
                progress.disk_room is not DiskRoom.ENOUGH
                or progress.match >= context.engine.commit_index
            ):
                there[progress.disk_room] += 1
        if there[DiskRoom.ENOUGH] < context.majority <= there.total():
            enough_if_low = there[DiskRoom.ENOUGH] + there[DiskRoom.LOW] >= context.majority
            self.room = DiskRoom.LOW if enough_if_low else DiskRoom.FULL
        if before is DiskRoom.ENOUGH and self.room is not before:
            for progress in self.peers.values():
                self._pump(progress)

    def _is_there(self, progress: Progress) -> bool:
        """Tell whether a follower can be counted on now: heard of lately, healthy, trusted."""
        context = self._context
        return (
            progress.member in context.outbox.up
            and progress.heard_at >= context.now - context.settings.election_timeout_min
            and not (progress.quarantined or progress.disk_hangs)
        )

    # Links and lives.

    def link_changed(self, peer: MemberId) -> None:
        """A link broke or stands again: what was in flight is taken for lost."""
        progress = self.peers[peer]
        progress.lost()
        if self._context.engine.is_leader:
            self._weigh_room()
            if not self._pump(progress):
                self._send(progress, None)

    def forget_data(self, peer: MemberId) -> None:
        """A peer has begun a new life without its data (D18 a)."""
        self.peers[peer].forget_data()
        self._context.engine.zero_match(peer)
        self._floor = self.trim_floor()

    # What the answers of all followers tell together.

    def trim_floor(self) -> int:
        """Return above which index no head is trimmed: what the slowest member that counts has.

        A member that is below the head, or silent for too long, does not count: it is refilled. Of
        the others none keeps more of the log than `absent_bytes_max` (in whole segments).
        """
        log, settings = self._context.log, self._context.settings
        since = self._context.now - settings.absent_seconds_max
        waited_for = min(
            (
                progress.match
                for progress in self.peers.values()
                if not progress.is_below_head and max(progress.heard_at, self._began_at) >= since
            ),
            default=log.durable_index,
        )
        kept_from = Position(max(0, log.last_position - settings.absent_bytes_max))
        return max(waited_for, log.segment_start(kept_from))

    @property
    def counts_unsynced(self) -> bool:
        """Tell whether a majority may be one of writes: a member's `flush` is async."""
        return self._context.settings.flush is FlushMode.ASYNC or any(
            progress.unsynced for progress in self.peers.values()
        )

    def all_matched(self, peer: MemberId) -> bool:
        """Tell whether a follower holds the whole log on its disk."""
        return self.peers[peer].match == self._context.log.last_index

    def transfer_candidates(self) -> list[MemberId]:
        """Return who could lead, those with room first, then the most complete."""
        able = [
            progress
            for progress in self.peers.values()
            if self._is_there(progress)
            and progress.pace is Pace.REPLICATE
            and progress.disk_room is not DiskRoom.FULL
        ]
        able.sort(key=lambda progress: (progress.disk_room, -progress.match, progress.member))
        return [progress.member for progress in able]

    def status(
        self, incarnations: Callable[[MemberId], bytes], refusals: Mapping[MemberId, str]
    ) -> list[PeerStatus]:
        """Return what an operator wants to see of each peer."""
        leads = self._context.formed and self._context.engine.is_leader
        return [
            PeerStatus(
                member=peer,
                connected=peer in self._context.outbox.up,
                match_index=LogIndex(progress.match),
                next_index=LogIndex(progress.next),
                inflight_bytes=progress.inflight_bytes,
                incarnation=incarnations(peer).hex(),
                quarantined=progress.quarantined,
                refused=refusals.get(peer, ""),
                clock_offset_ms=self._clocks.offset_ms(peer) if leads else None,
            )
            for peer, progress in self.peers.items()
        ]
