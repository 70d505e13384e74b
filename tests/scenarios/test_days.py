"""A day of traffic with a retention of minutes: no disk grows, and nothing is lost too early.

Goal: who runs a group for a month finds it as on its first day, also while a member is away.
Method: a message every few seconds of virtual time, and a look at every disk after each. Every
twenty minutes every member must hold what was acknowledged in the last ones, and a member starts
anew. A day takes ten minutes of real time, so the suite takes an hour; `periods(72)` is a day.
"""

from tests.scenarios.stage import Put, Stage
from tests.sim.faults.damage import FOLDER

MINUTE = 60
PERIOD = 20 * MINUTE
GAP = 5.0
"""Seconds between two messages."""
KEPT = 5 * MINUTE
"""So many seconds the topic keeps a message."""
KIB = 1 << 10
BODY = 2 * KIB
SEGMENT = 64 * KIB
AWAY_BYTES = 256 * KIB
"""So much log the others keep for a member that is away."""
PREALLOCATED = 2_048 * KIB + 256 * KIB
"""The reserve, and what is allocated in front of the log."""
DISK_MAX = PREALLOCATED + AWAY_BYTES + 4 * SEGMENT + 2 * int(KEPT / GAP) * BODY
READ_AT_START_MAX = 512 * KIB


class Days:
    """A group of three under light traffic, and what was acknowledged when."""

    def __init__(self) -> None:
        self.stage = Stage(
            "abc", segment_size=SEGMENT, retention_ms=KEPT * 1_000, absent_bytes_max=AWAY_BYTES
        ).formed()
        self.sent: list[tuple[float, Put]] = []
        self._number = 0

    def traffic(self, seconds: float) -> None:
        """Send, and look at the disks, every few seconds."""
        stage = self.stage
        end = stage.scheduler.now + seconds
        while stage.scheduler.now < end:
            if leader := stage.leader:
                self._number += 1
                put = stage.put(leader, f"v{self._number}", BODY)
                self.sent.append((stage.scheduler.now, put))
            stage.run_for(GAP)
            self._forget()
            for member in stage.members.values():
                used = member.fs.used_bytes()
                assert used <= DISK_MAX, f"{member.name} uses {used} bytes at {end:.0f} s"

    def _forget(self) -> None:
        """Forget what retention may have deleted."""
        now = self.stage.scheduler.now
        while self.sent and now - self.sent[0][0] >= KEPT:
            del self.sent[0]
            del self.stage.puts[0]

    def start_anew(self, name: str) -> None:
        """Kill a member and start it; what it reads must not grow."""
        member = self.stage.members[name]
        member.kill()
        before = member.fs.read_bytes
        self.stage.start_member(name)
        read = member.fs.read_bytes - before
        assert read <= READ_AT_START_MAX, f"{name} reads {read} bytes"
        self.stage.run_for(GAP)

    def check_all_there(self, *names: str) -> None:
        """Compare what members hold with what was acknowledged in the time of the retention."""
        assert len(self.sent) >= int(KEPT / GAP) - 2
        for name in names:
            values = self.stage.stored_values(name)
            for _, put in self.sent:
                assert put.stored, f"{put.value}: {put.outcome}"
                assert values.count(put.value) == 1, f"{put.value} on {name}"
            assert len(values) <= 2 * len(self.sent) + SEGMENT // BODY


def periods(count: int) -> Days:
    """Run so many periods; one member is away for a third of them."""
    it = Days()
    stage = it.stage
    for period in range(count):
        if period == count // 3:
            stage.members["c"].kill()
        if period == 2 * count // 3:
            stage.start_member("c")
        it.traffic(PERIOD)
        there = [name for name in "abc" if stage.members[name].running]
        it.check_all_there(*there)
        it.start_anew(there[period % len(there)])
    return it


def test_an_hour_of_traffic_leaves_a_group_as_it_was() -> None:
    """A member that was away for twenty minutes is refilled."""
    it = periods(3)
    assert it.stage.counts["started anew"] == 1
    assert it.stage.members["c"].running
    for name in "abc":
        process = it.stage.members[name].process
        assert process is not None
        assert process.log.first_index > 1
    assert len(it.stage.members["a"].fs.names(f"{FOLDER}/log")) <= 2 * DISK_MAX // SEGMENT
    it.stage.finish()
