"""A leader that leads again without what it had sent in an earlier reign (kill -9 before a sync).

On the harness of the group's unit tests: it shows single rounds of the disk, which this needs.
"""

from dledger.raft.wire import message_codec
from dledger.types import DiskRoom, MemberId
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import World


def _lost_tail(seed: int) -> tuple[World, int] | None:
    """Let a lead again without the entries that b holds of its first reign, unsynced, and b full.

    Return the world and the index of the last of these; None when c is elected instead of a.
    """
    world = World(disk_hang_limit=0.3, seed=seed)
    a, b = world.elect("a"), world["b"]
    world.run(0.5)
    a.disk_stalls = True
    world.cut = {("a", "c")}
    a.propose(*(bytes([number]) * 600_000 for number in range(5)))
    late, last = list(world.queues["a", "b"]), a.log.last_index
    a.kill()
    b.disk_stalls = True
    for data in late:  # what was on its way is read after b heard that the link is down
        b.group.receive(MemberId("a"), message_codec.decode(data), world.now)
    b.drain()
    assert b.log.last_index == last
    b.fs.budget_bytes = b.fs.used_bytes() + 5 * 600_000 + 40_000
    assert b.writing is not None
    b.writing.execute()  # takes what room was left; that it ended is heard of later
    assert b.log.disk_room is DiskRoom.FULL
    a.disk_stalls = False
    world.cut = {("a", "b"), ("b", "a")}
    world.disconnect("b", "c")
    world.run(3.0)
    a.start()
    world.until(lambda: bool(world.leaders), 10)
    if world.leader is not a:
        return None
    world.run(0.2)
    assert a.log.last_index < last
    world.cut = set()
    world.until(lambda: b.group.term == a.group.term)
    world.run(0.05)
    return world, last


def test_what_was_acknowledged_to_a_lost_reign_is_not_acknowledged_in_the_next() -> None:
    """b is full and drops the new reign's entries; its slow sync of the old ones proves nothing."""
    world, last = next(filter(None, map(_lost_tail, range(100))))
    a, b = world["a"], world["b"]
    world.cut = {("c", "a"), ("a", "c")}
    calls = [a.put(b"new-%d" % number) for number in range(8)]
    assert a.log.last_index >= last
    b.disk_stalls = False
    ended, b.writing = b.writing, None
    assert ended is not None
    b.group.write_finished(ended, world.now)
    b.drain()
    world.deliver("b", "a")
    assert not any(call.outcome is Outcome.STORED for call in calls), "stored on a alone, of three"
