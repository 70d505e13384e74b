"""Random histories of a registry: watchers agree with snapshots, terms go back only with leases."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dledger_namesrv.registry import Registry
from tests.unit.namesrv.helpers import LEASE, MEMBERS, FakeMember, FakeWatcher, topic

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "beat", "lead", "resign", "topic", "delete", "wait"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=60,
)


class World:
    """Two groups of three members, two watchers of which one reads rarely."""

    def __init__(self) -> None:
        self.registry = Registry(lease=LEASE)
        self.members = [
            FakeMember(self.registry, group=group, name=name) for group in "gh" for name in MEMBERS
        ]
        self.watchers = [FakeWatcher(self.registry), FakeWatcher(self.registry, names=("t1",))]
        self.lazy = FakeWatcher(self.registry)
        self.now = 0.0
        self.control_index = 0
        self.terms = {"g": 1, "h": 1}
        self.joined: set[int] = set()

    def step(self, kind: str, which: int, number: int) -> None:
        member = self.members[which]
        self.now += 0.5
        if kind == "wait":
            self.now += 2 * number
        elif kind == "join":
            member.join(self.now)
            self.joined.add(which)
        elif which in self.joined:
            self.change(kind, which, number, member)
        self.registry.expire(self.now)

    def told_by_listed(self, group: str) -> int:
        """Return the highest term of which a listed member that is heard names the leader.

        A term without a leader does not count: the registry may have forgotten a later one, and
        then waits for a leader.
        """
        (route,) = (each for each in self.registry.all_at_once((), 0).groups if each.group == group)
        heard = [claim for claim in route.claims if claim.ignored != "its stream is closed"]
        return max((int(claim.term) for claim in heard if claim.leader), default=0)

    def change(self, kind: str, which: int, number: int, member: FakeMember) -> None:
        if kind == "leave":
            member.leave()
            self.joined.discard(which)
            return
        if kind == "lead":
            # Elected: the new term is durable on a majority, the third member is behind.
            self.terms[member.group] += 1
            first = which - which % 3
            voter = self.members[first + (which + 1) % 3]
            member.term = voter.term = self.terms[member.group]
            member.leader, voter.leader = member.name, ""
        elif kind == "resign":
            member.leader = ""
        elif kind in {"topic", "delete"}:
            self.control_index += 1
            member.topics = [
                topic(
                    f"t{number}",
                    control_index=self.control_index,
                    groups=("g", "h"),
                    deleted=kind == "delete",
                )
            ]
            member.applied_index += 1
        if member.send(self.now, *member.topics).send_full:
            member.send(self.now, full=True)


def groups_of(watcher: FakeWatcher) -> dict[str, bytes]:
    return {
        name: group.SerializeToString(deterministic=True) for name, group in watcher.groups.items()
    }


def topics_of(watcher: FakeWatcher) -> dict[str, bytes]:
    return {
        name: told.SerializeToString(deterministic=True) for name, told in watcher.topics.items()
    }


@given(STEPS)
@example(
    [("join", 0, 0), ("lead", 0, 0), *[("join", 2, 0)] * 8, *[("leave", 0, 0)] * 3, ("wait", 0, 2)]
)
@settings(max_examples=200, deadline=None)
def test_deltas_lead_to_the_snapshot_and_terms_never_fall(steps: list[Step]) -> None:
    world = World()
    terms: dict[str, int] = {}
    for number, step in enumerate(steps):
        world.step(*step)
        for watcher in [*world.watchers, *([world.lazy] if number % 7 == 0 else [])]:
            watcher.catch_up()
            fresh = FakeWatcher(world.registry, names=watcher.names)
            fresh.catch_up()
            assert groups_of(watcher) == groups_of(fresh)
            # A topic whose teller is gone is not withdrawn while another group holds a part.
            assert topics_of(watcher).items() >= topics_of(fresh).items()
        listed = {name: group.term for name, group in world.watchers[0].groups.items()}
        for name, term in terms.items():
            assert name not in listed or listed[name] >= min(term, world.told_by_listed(name))
        terms = listed
