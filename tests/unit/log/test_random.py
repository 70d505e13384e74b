"""Random histories of a log against a plain list, on both file systems, from printed seeds."""

from random import Random

import pytest

from dledger.files import FileSystem
from dledger.log.settings import LogSettings
from dledger.types import LogIndex, Position
from tests.sim.disk.disk import SimFileSystem
from tests.unit.log.support import Member, Model, check_holds, replicate

STEPS = 120


def settings_of(random: Random) -> LogSettings:
    return LogSettings(
        segment_size=random.choice([300, 1500, 6000, 1 << 20]),
        tail_cache_bytes=random.choice([0, 4000, 1 << 20]),
        checkpoint_bytes=random.choice([0, 2000, 1 << 20]),
        allocate_bytes=random.choice([0, 700, 8192]),
        reserve_bytes=4096,
        low_water_bytes=0,
    )


class History:
    """A leader's log and a follower's, changed at random; the follower is cut back now and then."""

    def __init__(self, fs: FileSystem, path: str, random: Random) -> None:
        self.random = random
        self.leader = Member(fs, path + "/leader", settings_of(random), random.randrange(1 << 30))
        self.follower = Member(fs, path + "/f", settings_of(random), random.randrange(1 << 30))
        self.models = {id(self.leader): Model(), id(self.follower): Model()}
        self.heads = {id(self.leader): 1, id(self.follower): 1}
        self.committed = 0
        self.model(self.leader).entries.append(self.leader.genesis())
        self.term = 1

    def model(self, member: Member) -> Model:
        return self.models[id(member)]

    def step(self) -> None:
        actions = [
            self.append, self.append, self.append, self.replicate, self.replicate, self.sync,
            self.sync, self.cut, self.diverge, self.trim, self.reopen, self.check, self.overlap,
        ]  # fmt: skip
        self.random.choice(actions)()

    def member(self) -> Member:
        return self.random.choice([self.leader, self.follower])

    def append(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            payloads = [
                self.random.randbytes(self.random.choice([0, 10, 200, 900]))
                for _ in range(self.random.randrange(4))
            ]
            entry = self.leader.append(*payloads, term=self.term)
            self.model(self.leader).entries.append(entry)

    def replicate(self) -> None:
        leader, follower = self.leader.log, self.follower.log
        theirs, ours = self.model(self.leader), self.model(self.follower)
        same = 0
        for one, other in zip(theirs.entries, ours.entries, strict=False):
            if one.ref != other.ref:
                break
            same += 1
        if same < follower.last_index:
            follower.truncate_from(LogIndex(same + 1), LogIndex(self.committed))
            ours.cut(same + 1)
        if same + 1 < leader.first_index:
            return
        last = self.random.randrange(same, leader.last_index + 1)
        replicate(leader, follower, last)
        ours.entries.extend(theirs.entries[same:last])

    def sync(self) -> None:
        self.member().sync()
        durable = min(self.leader.log.durable_index, self.follower.log.durable_index)
        pairs = zip(
            self.model(self.leader).entries, self.model(self.follower).entries, strict=False
        )
        same = sum(one.ref == other.ref for one, other in pairs)
        self.committed = max(self.committed, min(durable, same))

    def overlap(self) -> None:
        """Change the log while a round is in flight."""
        member = self.member()
        taken = member.log.take_round(None, sync=self.random.random() < 0.5)
        self.random.choice([self.append, self.cut, self.replicate, self.diverge])()
        if taken is not None:
            taken.execute()
            self.random.choice([self.append, self.cut, self.replicate, self.diverge])()
            member.log.round_finished(taken)
            self.heads[id(member)] = member.log.first_index

    def cut(self) -> None:
        member = self.leader
        last = member.log.last_index
        index = self.random.randrange(max(1, last - 8), last + 1)
        if index > self.committed and index > max(1, self.heads[id(member)]):
            member.log.truncate_from(LogIndex(index), LogIndex(self.committed))
            self.model(member).cut(index)
            self.term += 1

    def diverge(self) -> None:
        """Let the follower lead for a moment: its entries will be cut."""
        if self.follower.log.last_index >= self.committed and self.follower.log.last_index:
            self.term += 1
            entry = self.follower.append(self.random.randbytes(300), term=self.term)
            self.model(self.follower).entries.append(entry)
            self.term += 1

    def trim(self) -> None:
        member = self.member()
        if self.committed > 2:
            index = self.random.randrange(1, self.committed)
            position = self.model(member).entries[index - 1].ref.position
            member.log.trim_head(Position(position), LogIndex(index))
            member.sync()
            self.heads[id(member)] = member.log.first_index

    def reopen(self) -> None:
        member = self.member()
        member.sync()
        self.heads[id(member)] = member.log.first_index
        member.reopen(close=self.random.random() < 0.5)

    def check(self) -> None:
        for member in (self.leader, self.follower):
            check_holds(member.log, self.model(member).entries, first=self.heads[id(member)])


def run(fs: FileSystem, path: str, seed: int) -> History:
    history = History(fs, path, Random(seed))
    for step in range(STEPS):
        try:
            history.step()
            if step % 3 == 2:
                history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {step}")
            raise
    return history


@pytest.mark.parametrize("seed", range(8))
def test_a_random_history_equals_a_list(disk: tuple[FileSystem, str], seed: int) -> None:
    fs, path = disk
    run(fs, path, seed)


def test_many_random_histories_on_the_simulated_disk() -> None:
    trimmed = cut = 0
    for seed in range(100, 150):
        history = run(SimFileSystem(Random(seed)), "/disk", seed)
        trimmed += history.leader.log.first_index > 1
        cut += history.term > 5
    assert trimmed > 10
    assert cut > 30
