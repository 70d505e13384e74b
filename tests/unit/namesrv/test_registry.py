"""The registry's rules, each on virtual time."""

import pytest

from dledger_namesrv.chunks import chunks_of
from dledger_namesrv.registry import Registry
from dledger_namesrv.silent import GROUPS_MAX, MEMBERS_PER_GROUP_MAX
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_TARGET
from tests.unit.namesrv.helpers import (
    LEASE,
    MEMBERS,
    FakeMember,
    FakeWatcher,
    group_line,
    topic,
    topic_names,
)


def three(registry: Registry, now: float = 0.0, **fields: object) -> list[FakeMember]:
    members = [FakeMember(registry, name=name, **fields) for name in MEMBERS]  # type: ignore[arg-type]
    for member in members:
        member.peers = [other for other in members if other is not member]
        member.join(now)
    return members


@pytest.fixture
def registry() -> Registry:
    return Registry(lease=LEASE)


# Leases


def test_answer_carries_lease_and_sequence(registry: Registry) -> None:
    answer = FakeMember(registry).join(0)
    assert (answer.sequence, answer.send_full, answer.lease_ms) == (1, False, 10_000)


def test_closed_stream_is_not_alive_at_once_and_leaves_with_its_lease(registry: Registry) -> None:
    a, b, c = three(registry)
    b.send(1)
    b.leave()
    assert group_line(registry) == "g 0 leader= a+ b- c+"
    for moment in (5, 10):
        a.send(moment)
        c.send(moment)
    registry.expire(10.999)
    assert group_line(registry) == "g 0 leader= a+ b- c+", "its lease began with its last message"
    registry.expire(11)
    assert group_line(registry) == "g 0 leader= a+ c+"


def test_silent_stream_leaves_with_its_lease(registry: Registry) -> None:
    a, *_ = three(registry)
    a.send(4)
    registry.expire(9.99)
    assert group_line(registry) == "g 0 leader= a+ b+ c+"
    registry.expire(10)
    assert group_line(registry) == "g 0 leader= a+"
    assert registry.next_deadline() == 14


def test_message_after_the_lease_ended_registers_again(registry: Registry) -> None:
    a = FakeMember(registry, topics=[topic("t")])
    a.join(0)
    registry.expire(10)
    assert group_line(registry) == ""
    assert a.send(11).send_full, "the topics went with the group"
    assert a.send(12, full=True).send_full is False
    assert (group_line(registry), topic_names(registry)) == ("g 0 leader= a+", ["t"])


def test_next_deadline_is_the_earliest_lease(registry: Registry) -> None:
    assert registry.next_deadline() is None
    a, b, _ = three(registry, 3)
    a.send(5)
    b.send(6)
    assert registry.next_deadline() == 13


def test_a_standstill_of_our_own_is_forgiven(registry: Registry) -> None:
    three(registry)
    registry.forgive(55)
    registry.expire(60)
    assert group_line(registry) == "g 0 leader= a+ b+ c+"
    registry.expire(65)
    assert group_line(registry) == ""


def test_newer_stream_of_a_member_replaces_the_older(registry: Registry) -> None:
    a = FakeMember(registry)
    a.join(0)
    old = a.session
    a.address = "elsewhere:1"
    a.join(1)
    registry.close_session(old)
    assert group_line(registry) == "g 0 leader= a+", "the old stream's end says nothing any more"
    assert registry.snapshot()[0].groups[0].members[0].address == "elsewhere:1"
    a.session = old
    with pytest.raises(DledgerError, match="newer stream"):
        a.send(2)


def test_older_stream_does_not_take_over_a_member(registry: Registry) -> None:
    late = FakeMember(registry).connect()
    FakeMember(registry).join(0)
    with pytest.raises(DledgerError, match="newer stream"):
        late.send(1, full=True)


# Sequences


def test_first_message_must_be_full(registry: Registry) -> None:
    a = FakeMember(registry, topics=[topic("t")]).connect()
    assert a.send(0).send_full
    assert group_line(registry) == "g 0 leader= a+", "it is a heartbeat all the same"
    assert a.send(1).send_full
    assert not a.send(2, full=True).send_full
    assert not a.send(3).send_full


def test_gap_asks_for_a_full_registration_until_it_comes(registry: Registry) -> None:
    a = FakeMember(registry)
    a.join(0)
    a.sequence += 1
    assert a.send(1, topic("x")).send_full
    assert topic_names(registry) == ["x"], "what a delta says is true whatever is missing"
    assert a.send(2).send_full
    a.topics = [topic("x"), topic("lost")]
    assert not a.send(3, full=True).send_full
    assert topic_names(registry) == ["lost", "x"]


@pytest.mark.parametrize("sequence", [0, 1, 2, 7])
def test_repeated_older_or_skipped_number_is_a_gap(registry: Registry, sequence: int) -> None:
    a = FakeMember(registry)
    a.join(0)
    a.send(1)
    message = a.message()
    message.sequence = sequence
    assert registry.register(a.session, message, 2).send_full


# Topics and the lifetime of queues (S8)


def test_queue_data_leaves_only_with_the_last_member(registry: Registry) -> None:
    a, b, c = three(registry, topics=[topic("t")])
    a.leave()
    b.leave()
    c.send(5)
    registry.expire(10)
    assert (group_line(registry), topic_names(registry)) == ("g 0 leader= c+", ["t"])
    c.leave()
    assert topic_names(registry) == ["t"], "listed until its lease ends"
    registry.expire(15)
    assert (group_line(registry), topic_names(registry)) == ("", [])


def test_topic_of_two_groups_stays_with_the_other(registry: Registry) -> None:
    shared = topic("t", groups=("g", "h"))
    only_g = topic("only")
    FakeMember(registry, topics=[shared, only_g]).join(0)
    FakeMember(registry, group="h", topics=[shared]).join(5)
    registry.expire(10)
    assert topic_names(registry) == ["t"]


def test_member_that_is_behind_brings_nothing_back(registry: Registry) -> None:
    old, new = topic("t", control_index=5), topic("t", control_index=9, groups=("g", "h"))
    gone = topic("gone", control_index=8, deleted=True)
    FakeMember(registry, name="a", applied_index=20, topics=[new, gone]).join(0)
    behind = [old, topic("gone", control_index=2)]
    FakeMember(registry, name="b", applied_index=10, topics=behind).join(0)
    (found,) = registry.snapshot()[0].topics
    assert (found.name, found.control_index) == ("t", 9)


def test_of_one_control_index_a_groups_later_word_counts(registry: Registry) -> None:
    first, second = topic("t"), topic("t")
    second.permission = 4
    a = FakeMember(registry, applied_index=10, topics=[first])
    a.join(0)
    a.applied_index = 9
    a.send(1, second)
    assert registry.snapshot()[0].topics[0].permission == 6
    a.applied_index = 11
    a.send(2, second)
    assert registry.snapshot()[0].topics[0].permission == 4


def test_name_made_anew_is_the_new_topic_in_any_order(registry: Registry) -> None:
    old = topic("t", number=1, control_index=10, deleted=True)
    new = topic("t", number=2, control_index=12)
    a = FakeMember(registry)
    a.join(0)
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    a.send(1, new)
    watcher.catch_up()
    a.send(2, old)
    watcher.catch_up()
    assert registry.snapshot()[0].topics[0].id == new.id
    assert watcher.topics["t"].id == new.id


def test_hundred_thousand_topics_never_hold_back_a_heartbeat(registry: Registry) -> None:
    names = [f"topic-{number:06d}" for number in range(100_000)]
    rows = [topic("t", number=number) for number in range(len(names))]
    for row, name in zip(rows, names, strict=True):
        row.name, row.id = name, name.encode().rjust(16, b"0")
    a = FakeMember(registry, topics=rows).connect()
    chunks = list(chunks_of(a.message(full=True)))
    assert len(chunks) > 5
    assert all(chunk.ByteSize() <= FRAME_SIZE_TARGET for chunk in chunks)
    # Each chunk is a heartbeat: a whole second between them is far inside the lease.
    for moment, chunk in enumerate(chunks):
        registry.expire(moment)
        assert not registry.register(a.session, chunk, moment).send_full
    assert group_line(registry) == "g 0 leader= a+"
    replies = registry.snapshot()
    assert [reply.full for reply in replies] == [True] + [False] * (len(replies) - 1)
    assert all(reply.ByteSize() <= FRAME_SIZE_TARGET + 1024 for reply in replies)
    assert topic_names(registry) == names
    assert [reply.more for reply in replies] == [True] * (len(replies) - 1) + [False]
    at_once = registry.all_at_once((), 0.0)
    assert (at_once.full, at_once.more, len(at_once.groups)) == (False, True, 1), "what fits"
    assert at_once.ByteSize() <= FRAME_SIZE_TARGET + 1024
    # A second member tells the same: nothing changes for watchers but the member.
    before = registry.version
    FakeMember(registry, name="b", topics=rows).join(len(chunks))
    delta = registry.changes_since(before)
    assert delta is not None
    assert (len(delta.groups), len(delta.topics)) == (1, 0)


# Leaders


def lead(member: FakeMember, now: float, term: int, leader: str) -> None:
    if leader == member.name and member.term < term:
        member.win(now, term)
    else:
        member.tell(now, term, leader)


def test_higher_term_replaces_and_lower_never_does(registry: Registry) -> None:
    a, b, c = three(registry)
    lead(a, 1, 3, "a")
    lead(b, 2, 4, "b")
    lead(c, 3, 3, "a")
    assert group_line(registry) == "g 4 leader=b a+ b+ c+"
    lead(a, 4, 3, "a")
    assert group_line(registry) == "g 4 leader=b a+ b+ c+"


def test_lower_term_does_not_come_back_when_the_leader_is_gone(registry: Registry) -> None:
    a, b, c = three(registry)
    lead(a, 1, 3, "a")
    lead(b, 2, 4, "b")
    b.leave()
    lead(c, 3, 3, "a")
    assert group_line(registry) == "g 4 leader= a+ b- c+"
    a.send(5)
    registry.expire(12)
    lead(c, 12.5, 3, "a")
    assert group_line(registry) == "g 4 leader= a+ c+", "the voter of that term is listed"


def test_leader_whose_stream_closes_is_no_leader_at_once(registry: Registry) -> None:
    a, b, _ = three(registry)
    lead(a, 1, 3, "a")
    a.leave()
    assert group_line(registry) == "g 3 leader= a- b+ c+"
    lead(b, 2, 4, "b")
    assert group_line(registry) == "g 4 leader=b a- b+ c+"


def test_leader_only_the_name_server_cannot_hear_is_brought_back(registry: Registry) -> None:
    a, b, _ = three(registry)
    lead(a, 1, 3, "a")
    a.leave()
    lead(b, 2, 3, "a")
    assert group_line(registry) == "g 3 leader=a a- b+ c+"
    lead(b, 3, 3, "")
    assert group_line(registry) == "g 3 leader= a- b+ c+"


def test_leader_that_resigned_is_brought_back_only_by_itself(registry: Registry) -> None:
    a, b, _ = three(registry)
    lead(a, 1, 3, "a")
    lead(a, 2, 3, "")
    lead(b, 3, 3, "a")
    assert group_line(registry) == "g 3 leader= a+ b+ c+"
    lead(a, 4, 3, "a")
    assert group_line(registry) == "g 3 leader=a a+ b+ c+"


def test_an_election_that_may_fail_does_not_hide_a_heard_leader(registry: Registry) -> None:
    a, b, _ = three(registry)
    lead(a, 1, 3, "a")
    lead(b, 2, 7, "")
    assert group_line(registry) == "g 3 leader=a a+ b+ c+"
    lead(a, 3, 7, "")
    assert group_line(registry) == "g 3 leader= a+ b+ c+"
    lead(b, 4, 3, "a")
    assert group_line(registry) == "g 3 leader= a+ b+ c+", "it was in a later term already"


def test_group_formed_anew_after_a_wipe_starts_over(registry: Registry) -> None:
    members = three(registry, topics=[topic("old", control_index=500)])
    lead(members[0], 1, 40, "a")
    lead(members[1], 1, 40, "a")
    for member in members:
        member.leave()
        member.topics, member.term, member.leader = [topic("new", control_index=3)], 0, ""
    members[0].join(2)
    assert group_line(registry) == "g 40 leader= a+ b- c-", "one wiped member proves nothing"
    members[0].tell(2.5, 1, "")
    assert group_line(registry) == "g 40 leader= a+ b- c-"
    members[1].term, members[1].leader = 1, "b"
    members[1].join(3)
    assert group_line(registry) == "g 1 leader=b a+ b+ c-"
    assert members[0].send(4).send_full
    members[0].send(5, full=True)
    assert topic_names(registry) == ["new"]


def test_members_that_are_only_behind_do_not_start_over(registry: Registry) -> None:
    a, b, c = three(registry)
    lead(a, 1, 40, "a")
    for member in (b, c):
        member.tell(2, 39, "")
    assert group_line(registry) == "g 40 leader=a a+ b+ c+", "their streams are older than the term"


# Clusters and limits


def test_second_cluster_is_refused_until_the_first_is_gone(registry: Registry) -> None:
    FakeMember(registry).join(0)
    other = FakeMember(registry, cluster="d")
    with pytest.raises(DledgerError, match="serves cluster 'c', not 'd'") as caught:
        other.join(1)
    assert caught.value.code is Code.WRONG_CLUSTER
    registry.expire(10)
    other.join(11)
    assert registry.snapshot()[0].cluster == "d"


def test_named_cluster_stays_named() -> None:
    registry = Registry("c", lease=LEASE)
    with pytest.raises(DledgerError) as caught:
        FakeMember(registry, cluster="d").join(0)
    assert caught.value.code is Code.WRONG_CLUSTER
    FakeMember(registry).join(0)
    registry.expire(10)
    assert registry.snapshot()[0].cluster == "c"


def test_an_id_never_changes_its_name(registry: Registry) -> None:
    a = FakeMember(registry, topics=[topic("t")])
    a.join(0)
    other = topic("u", control_index=2)
    other.id = topic("t").id
    b = FakeMember(registry, group="h", topics=[other, topic("v")])
    b.join(1)
    assert topic_names(registry) == ["t", "v"], "its other topics are taken, and so is it"
    registry.expire(10)
    assert topic_names(registry) == ["v"]


def test_who_told_another_name_before_keeps_no_group_out(registry: Registry) -> None:
    """Right after the start of a name server anybody may be the first."""
    wrong = topic("u", control_index=9)
    wrong.id = topic("t").id
    FakeMember(registry, group="x", control_group=False, topics=[wrong]).join(0)
    FakeMember(registry, topics=[topic("t")]).join(1)
    assert group_line(registry) == "g 0 leader= a+"
    assert topic_names(registry) == ["t"], "the control group's word counts"


def test_one_stream_registers_one_member(registry: Registry) -> None:
    a = FakeMember(registry)
    a.join(0)
    a.name = "b"
    with pytest.raises(DledgerError, match="one stream registers one member, this one g/a"):
        a.send(1)


def test_groups_and_members_are_bounded(registry: Registry) -> None:
    for number in range(MEMBERS_PER_GROUP_MAX):
        FakeMember(registry, name=f"m{number}").join(0)
    with pytest.raises(DledgerError, match=r"limit of \d+ members"):
        FakeMember(registry, name="more").join(0)
    for number in range(GROUPS_MAX - 1):
        FakeMember(registry, group=f"g{number}").join(0)
    with pytest.raises(DledgerError, match="limit of 1000 groups") as caught:
        FakeMember(registry, group="more").join(0)
    assert caught.value.code is Code.BUSY


def test_topics_are_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_namesrv.registry.TOPICS_MAX", 3)
    a = FakeMember(registry, topics=[topic("x"), topic("y"), topic("z")])
    a.join(0)
    a.send(1, full=True)
    with pytest.raises(DledgerError, match="limit of 3 topics"):
        a.send(2, topic("w"))


def test_deleted_topics_are_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in which topics come and go for ever never reaches the limit of topics."""
    monkeypatch.setattr("dledger_namesrv.registry.TOPICS_MAX", 5)
    monkeypatch.setattr("dledger_namesrv.topics.DELETED_ROWS_MAX", 3)
    a = FakeMember(registry, topics=[topic("kept")])
    a.join(0)
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    for number in range(2, 40, 2):
        a.send(number, topic("t", number=number, control_index=number))
        a.send(number, topic("t", number=number, control_index=number + 1, deleted=True))
        assert topic_names(registry) == ["kept"]
        assert len(registry._topics) <= 4
    a.send(41, topic("t", number=38, control_index=38))
    assert topic_names(registry) == ["kept"], "who is behind brings none back"
    watcher.catch_up()
    assert sorted(watcher.topics) == ["kept"]


# Watchers


def test_watcher_sees_each_change_as_a_delta(registry: Registry) -> None:
    a, b, _ = three(registry, topics=[topic("t")])
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    assert (watcher.fulls, sorted(watcher.topics)) == (1, ["t"])
    lead(a, 1, 3, "a")
    b.leave()
    a.send(2, topic("u", control_index=2))
    a.send(3, topic("t", control_index=3, deleted=True))
    watcher.catch_up()
    assert watcher.fulls == 1
    assert (watcher.groups["g"].leader, sorted(watcher.topics)) == ("a", ["u"])
    registry.expire(20)
    watcher.catch_up()
    assert (watcher.groups, watcher.topics, watcher.fulls) == ({}, {}, 1)


def test_heartbeats_alone_change_nothing(registry: Registry) -> None:
    a, b, c = three(registry, term=2, leader="a", topics=[topic("t")])
    version = registry.version
    for moment in range(1, 50):
        for member in (a, b, c):
            member.send(moment)
        registry.expire(moment)
    a.send(50, full=True)
    assert registry.version == version


def test_watcher_of_names_sees_only_those(registry: Registry) -> None:
    a = FakeMember(registry, topics=[topic("x"), topic("y")])
    a.join(0)
    watcher = FakeWatcher(registry, names=("y", "later"))
    watcher.catch_up()
    a.send(1, topic("z"), topic("later"))
    watcher.catch_up()
    assert sorted(watcher.topics) == ["later", "y"]


def test_watcher_too_far_behind_gets_a_snapshot(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger_namesrv.changes.DELTA_KEYS_MAX", 10)
    a = FakeMember(registry)
    a.join(0)
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    a.send(1, *(topic(f"t{number}") for number in range(10)))
    watcher.catch_up()
    assert watcher.fulls == 1
    a.send(2, *(topic(f"u{number}") for number in range(11)))
    watcher.catch_up()
    assert (watcher.fulls, len(watcher.topics)) == (2, 21)
