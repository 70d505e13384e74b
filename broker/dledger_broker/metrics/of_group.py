"""One broker group of the process: role, log, peers, disk, repair, timers.

Owns: which values of the group make which series. Not: the values. Status, findings and state have
them, and `dledger status` shows the same ones (`rpc/status.py`).
"""

from collections.abc import Iterator

from dledger.raft.api import GroupStatus, Role
from dledger.types import DiskRoom, MemberId
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics import catalogue as series
from dledger_broker.snapshots.keeping import Snapshots
from dledger_monitoring.series import Sheet

_SERVES_NOTHING = (Role.UNFORMED, Role.QUARANTINED, Role.STOPPED)
_ROOM = {DiskRoom.ENOUGH: 0, DiskRoom.LOW: 1, DiskRoom.FULL: 2}


class OfGroup:
    """The series of one group."""

    def __init__(self, view: GroupView, snapshots: Snapshots) -> None:
        self._view = view
        self._snapshots = snapshots

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        status = self._view.host.group.status()
        self._raft(sheet, status)
        yield
        self._indexes(sheet, status)
        self._peers(sheet, status)
        yield
        self._disk(sheet)
        yield
        self._care(sheet)
        self._timers(sheet)
        yield

    def _raft(self, sheet: Sheet, status: GroupStatus) -> None:
        view, group = self._view, self._view.names.group
        meters = view.meters
        low = view.log.disk_room is not DiskRoom.ENOUGH
        reads = 0 if status.role in _SERVES_NOTHING else 4
        writes = 2 if reads and status.leader is not None and not low else 0
        sheet.put(series.PERMISSION, reads + writes, group)
        for role in Role:
            sheet.put(series.ROLE, status.role is role, group, role.value)
        sheet.put(series.TERM, status.term, group)
        sheet.put(series.HAS_LEADER, status.leader is not None, group)
        sheet.put(series.CAMPAIGNS, meters.events["campaign"], group)
        sheet.put(series.LEADER_CHANGES, meters.leader_changes, group)
        for name, count in sorted(meters.events.items()):
            sheet.put(series.EVENTS, count, group, name)
        sheet.put_all(series.WRITE_SECONDS, meters.write_seconds, group)
        sheet.put_all(series.APPEND_SECONDS, meters.append_seconds, group)
        sheet.put(series.CLOCK_OFFSET, status.clock_offset_ms / 1_000, group)
        sheet.put(series.CLOCK_OFF, status.clock_is_off, group)

    def _indexes(self, sheet: Sheet, status: GroupStatus) -> None:
        group = self._view.names.group
        places = {
            "first": status.first_index,
            "last": status.last_index,
            "durable": status.durable_index,
            "commit": status.commit_index,
            "applied": status.applied_index,
            "saved": self._view.machine.saved_index,
        }
        for place, index in places.items():
            sheet.put(series.INDEX, index, group, place)
        # A member that has just begun knows no commit index yet, and has applied entries.
        commit = max(status.commit_index, status.applied_index)
        sheet.put(series.COMMIT_LAG, max(status.last_index - commit, 0), group)
        sheet.put(series.APPLY_LAG, commit - status.applied_index, group)

    def _peers(self, sheet: Sheet, status: GroupStatus) -> None:
        view, group, now = self._view, self._view.names.group, self._view.clock.monotonic()
        for peer in view.names.addresses:
            if peer == view.names.member:
                continue
            silent = view.host.silences.of(MemberId(peer), now)
            sheet.put(series.PEER_SILENT, silent, group, peer)
            sheet.put(series.LINK_UP, silent == 0, group, peer)
            sheet.put(series.LINK_CONNECTS, view.meters.connects[peer], group, peer)
        if status.role is not Role.LEADER:
            return
        for each in status.peers:
            lag = max(status.last_index - each.match_index, 0)
            sheet.put(series.PEER_MATCH, each.match_index, group, each.member)
            sheet.put(series.PEER_LAG, lag, group, each.member)
            sheet.put(series.PEER_QUARANTINED, each.quarantined, group, each.member)

    def _disk(self, sheet: Sheet) -> None:
        view, log, group = self._view, self._view.log, self._view.names.group
        behind = max(log.last_position - view.machine.applied_position, 0)
        sheet.put(series.STORAGE_SIZE, log.last_position - log.first_position, group)
        sheet.put(series.FLUSH_BEHIND, log.unsynced_bytes, group)
        sheet.put(series.DISPATCH_BEHIND, behind, group)
        sheet.put(series.SEGMENTS, len(log.sealed_segments) + (not log.is_empty), group)
        sheet.put(series.DISK_FREE, log.space.free_bytes, group)
        sheet.put(series.DISK_ROOM, _ROOM[log.disk_room], group)
        sheet.put(series.STATE_UNSAVED, view.machine.unsaved_bytes, group)
        oldest = view.machine.queries.head().queue
        if oldest is not None:
            topic, number, minimum = oldest
            stored_ms = view.machine.queries.row_at(topic.topic_id, number, minimum).store_time_ms
            sheet.put(series.RESERVE_TIME, max(view.now_ms - stored_ms, 0), group)

    def _care(self, sheet: Sheet) -> None:
        view, group = self._view, self._view.names.group
        findings, scrub = view.findings, view.findings.scrub
        sheet.put(series.REFILL, bool(view.refill_says()), group)
        sheet.put(series.REFILL_LEFT, view.refill_left_bytes(), group)
        sheet.put(series.SCRUB, bool(scrub.number and not scrub.ended_ms), group)
        sheet.put(series.SCRUB_READ, scrub.read_bytes, group)
        sheet.put(series.SCRUB_TOTAL, scrub.total_bytes, group)
        sheet.put(series.DAMAGE_FOUND, findings.found_ever, group)
        sheet.put(series.DAMAGE_MENDED, findings.mended_ever, group)
        sheet.put(series.DAMAGE_LEFT, len(findings.left), group)
        making = self._snapshots.making
        sheet.put(series.SNAPSHOT_MAKING, making is not None and not making.problem, group)
        sheet.put(series.SNAPSHOTS_KEEP, view.keeps_snapshots(), group)

    def _timers(self, sheet: Sheet) -> None:
        view, group = self._view, self._view.names.group
        sheet.put(series.TIMERS, view.machine.queries.timers_waiting, group)
        if view.leads:
            due_ms = view.machine.queries.next_due_ms
            late = 0 if due_ms is None else max(view.now_ms - due_ms, 0)
            sheet.put(series.TIMER_LATENESS, late, group)
