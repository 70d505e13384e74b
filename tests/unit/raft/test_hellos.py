"""Which hellos and messages a member believes: a case for each rule of `membership/hellos.py`.

Goal: nothing late, repeated, echoed wrongly or of a stranger is taken for news of a peer (D18).
"""

from dataclasses import replace

from dledger.raft.api import Role
from dledger.raft.wire.messages import Hello, Message, TermNotice
from dledger.types import MemberId
from tests.unit.raft.harness import World

A, B = MemberId("a"), MemberId("b")
LIFE = bytes(range(16))


class Met:
    """A formed group; `hello` is a newest hello of a to b, never delivered yet."""

    def __init__(self) -> None:
        self.world = World()
        self.world.elect("a")
        self.world.run(0.3)
        self.b = self.world["b"]
        self.membership = self.b.group._wiring.membership
        self.world.hold_all()
        self.world["a"].group._wiring.membership.announce()
        self.world["a"].drain()
        hellos = [m for m in self.world.waiting("a", "b") if isinstance(m, Hello)]
        self.hello = hellos[-1]
        self.b.group._context.now = self.world.now

    @property
    def state(self) -> int:
        return self.membership.views[A].state_number

    def sent_by_b(self) -> list[Message]:
        return [message for target, message in self.b.group.outputs().messages if target == A]


def test_a_hello_is_news_once() -> None:
    met = Met()
    before = met.state
    later = replace(met.hello, term=met.hello.term + 7)
    met.membership.on_hello(A, met.hello)
    assert met.state == met.hello.state_number > before
    met.membership.on_hello(A, later)
    assert met.membership.views[A].term == met.hello.term, "its number was used already"


def test_a_hello_that_does_not_echo_this_process_is_answered_and_not_believed() -> None:
    met = Met()
    before = met.membership.views[A]
    met.world.now += 1.0
    met.b.group._context.now = met.world.now
    met.membership.on_hello(A, replace(met.hello, echo_session=12345))
    assert met.membership.views[A] == before
    answers = [message for message in met.sent_by_b() if isinstance(message, Hello)]
    assert [each.echo_session for each in answers] == [met.hello.session]


def test_a_hello_of_a_process_that_is_over_is_ignored() -> None:
    met = Met()
    old = met.hello
    newer = replace(old, state_number=1)
    newer.session, newer.sequence = old.session + 2, 1
    met.membership.on_hello(A, newer)
    assert met.state == 1
    met.membership.on_hello(A, old)
    met.membership.on_hello(A, _of_session(old, 0))
    assert met.state == 1
    assert met.membership._sessions[A].session == newer.session


def _of_session(hello: Hello, session: int) -> Hello:
    other = replace(hello)
    other.session, other.sequence = session, hello.sequence
    return other


def test_a_stranger_is_refused_whatever_of_it_is_strange() -> None:
    for change in ({"cluster": "x"}, {"group": "x"}, {"member": "x"}, {"group_id": LIFE}):
        met = Met()
        before = met.state
        met.membership.on_hello(A, replace(met.hello, **change))
        assert met.state == before, change
        assert "WRONG_CLUSTER" in met.membership.refusals[A]
    met.membership.on_hello(A, met.hello)
    assert A not in met.membership.refusals, "it is what it should be again"


def test_a_message_counts_once_and_in_order() -> None:
    met = Met()
    message = TermNotice(1)
    message.session, message.sequence = met.hello.session, met.hello.sequence + 1
    assert met.membership.admit(A, message)
    assert not met.membership.admit(A, message), "repeated"
    message.sequence = met.hello.sequence
    assert not met.membership.admit(A, message), "late"
    message.sequence, message.session = met.hello.sequence + 9, 12345
    assert not met.membership.admit(A, message), "of whom?"


def test_only_the_recorded_life_of_a_formed_peer_promises_by_its_hello() -> None:
    """What a life without data says must not take the place of what the recorded one owes."""
    met = Met()
    promised = met.membership._promised[A]
    assert promised.term == met.hello.term > 0
    unformed = replace(met.hello, group_id=b"", term=0, incarnation=LIFE)
    met.membership.on_hello(A, unformed)
    assert met.membership._promised[A] == promised
    again = replace(met.hello, term=promised.term - 1)
    again.sequence, again.session = met.hello.sequence + 1, met.hello.session
    met.membership.on_hello(A, again)
    assert "old copy" in met.membership.refusals[A]
    assert not met.membership.admit(A, _notice(again)), "it is not believed any more"


def _notice(after: Hello) -> Message:
    message = TermNotice(1)
    message.session, message.sequence = after.session, after.sequence + 1
    return message


def test_a_life_that_forgot_says_nothing_of_weight_until_it_has_begun_anew() -> None:
    met = Met()
    met.membership.forget_life(A, "for the test")
    met.sent_by_b()
    met.membership.forget_life(A, "twice")
    assert met.membership.refusals[A].endswith("for the test"), "it was told already"
    before = met.state
    met.world.now += 1.0
    met.b.group._context.now = met.world.now
    met.membership.on_hello(A, met.hello)
    assert met.state == before, "its hello is not learnt"
    told = [message for message in met.sent_by_b() if isinstance(message, Hello)]
    assert [message.forgotten for message in told] == [True]
    renewed = replace(met.hello, incarnation=LIFE, quarantined=True)
    renewed.session, renewed.sequence = met.hello.session, met.hello.sequence + 1
    met.membership.on_hello(A, renewed)
    assert met.membership.views[A].incarnation == LIFE
    assert A not in met.membership.refusals


def test_a_hello_that_was_asked_for_leaves_at_once_and_others_are_paced() -> None:
    met = Met()

    def hellos() -> int:
        return sum(isinstance(message, Hello) for message in met.sent_by_b())

    hellos()
    met.membership._say_hello(A, asked=True)
    met.membership._say_hello(A, asked=True)
    assert hellos() == 2
    met.membership._say_hello(A, asked=False)
    assert hellos() == 0, "one was just sent"
    due = met.membership._hello_at[A]
    assert 0.0 < due - met.world.now <= 0.021
    met.b.group._context.now = due
    met.membership.tick()
    assert hellos() == 1
    met.b.group._context.now = due + 1.0
    met.membership._say_hello(A, asked=False)
    assert hellos() == 1, "the last one is long ago"


def test_a_life_without_data_is_met_whatever_the_one_before_it_forgot() -> None:
    """Or nobody would tell it what to begin anew with."""
    met = Met()
    met.membership.forget_life(A, "for the test")
    met.membership.on_hello(A, replace(met.hello, group_id=b"", incarnation=LIFE))
    assert met.membership.views[A].incarnation == LIFE


def test_a_new_life_is_told_when_it_is_on_disk() -> None:
    """What a restart may take back is nobody's to record."""
    met = Met()
    old = met.membership.incarnation
    met.b.disk_stalls = True
    met.b.group._context.durability.renew_life(B, LIFE)
    met.sent_by_b()
    met.membership._say_hello(A, asked=True)
    (told,) = [message for message in met.sent_by_b() if isinstance(message, Hello)]
    assert (told.incarnation, told.quarantined) == (old, False)


def test_nobody_takes_part_before_the_first_entry_is_on_its_disk() -> None:
    """It would be a member that a power cut makes a stranger (D4, D18)."""
    world = World(start=False)
    late = world["b"]
    late.disk_stalls = True
    for member in world.members.values():
        member.start()
    world.run(0.5)
    membership = late.group._wiring.membership
    assert late.writing is not None, "whom it forms with"
    late.disk_stalls = False
    late.write()
    late.disk_stalls = True
    late.drain()
    world.run(0.3)
    assert membership._joining._genesis_written
    assert late.writing is not None, "the first entry"
    assert (late.role, membership.group_id) == (Role.UNFORMED, b"")
    late.disk_stalls = False
    world.run(1.0)
    assert late.role in (Role.FOLLOWER, Role.LEADER)
