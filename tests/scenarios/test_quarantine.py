"""D18: a member without data is never trusted: both counter-examples, and every member wiped."""

import pytest

from dledger.log.hard_state import HardState
from dledger.raft.api import Role
from dledger.raft.group import RISK_SENTENCE
from dledger.raft.wire import message_codec, messages
from dledger.types import MemberId
from tests.scenarios.stage import Stage
from tests.sim.member.process import Process


def _wipe(stage: Stage, name: str, *, start: bool = True) -> None:
    stage.members[name].power_cut()
    stage.group.wipe(name)
    if start:
        stage.start_member(name)


def _quarantined(stage: Stage, name: str) -> bool:
    return stage.members[name].role is Role.QUARANTINED


def test_a_forgotten_vote_elects_no_second_leader() -> None:
    """Five members L A C D M. M votes for A in a new term and is wiped. L, still leading the term
    before with C and D, refills M. D votes for A: A leads with A, D and M's old vote. M, having
    forgotten, votes for C in the same term: C would lead it, too, with C, L, M.
    """
    stage = Stage("lacdm").formed()
    term = stage.term("l")
    late: list[bytes] = []

    def only_m_hears_a(source: str, target: str, message: messages.Message) -> bool:
        if stage.term("a") == term:
            return False
        if isinstance(message, messages.VoteRequest) and (source, target) == ("a", "d"):
            late.append(b"".join(message_codec.encode(message)))
        if "a" in (source, target):
            return "m" not in (source, target)
        return (source, target) == ("m", "l") and stage.term("m") > term

    stage.filters.append(only_m_hears_a)
    stage.members["l"].transfer("a")
    state = stage.members["m"].view.hard_state
    stage.run_until(lambda: _vote(state()) == ("a", term + 1), 2.0, "M votes for A")
    stage.run_for(0.02)
    _wipe(stage, "m")
    stage.run_for(0.25)
    assert stage.leads("l"), "still the leader of the term before"
    for data in late[:1]:
        stage.members["d"].deliver("a", data)
    stage.filters[:] = [lambda source, target, _: (source in "ad") != (target in "ad")]
    stage.run_for(0.02)
    assert stage.leads("a"), "with its own vote, D's, and M's of before"
    stage.run_for(1.0)  # L gives up to hand over to A
    stage.members["l"].transfer("c")  # if it leads still, with C and M
    stage.run_for(0.3)
    stage.finish()


def _vote(state: HardState | None) -> tuple[str | None, int]:
    return (None, 0) if state is None else (state.vote, int(state.term))


def test_a_wiped_member_elects_nobody_who_misses_its_commits() -> None:
    """M as leader commits e with Y alone and is wiped; Y does not know that e is committed; M
    catches up without e and elects Z. M must stay in quarantine until Y and Z both told their terms
    and a majority without M confirmed a barrier.
    """
    stage = Stage("myz").formed()
    stage.isolate("z")
    stage.put("m", "base")
    stage.settle()
    put = stage.put("m", "e")
    stage.run_until(lambda: put.stored, 1.0, "e is committed with y alone")
    _wipe(stage, "m", start=False)
    stage.members["y"].kill()
    stage.join()
    stage.start_member("m")  # z and m alone: m knows nothing, z misses e
    stage.run_for(8.0)
    assert not stage.leads("z"), "z leads with the vote of a member that forgot"
    assert not stage.leads("m")
    assert stage.members["m"].role in (Role.QUARANTINED, Role.UNFORMED)
    stage.start_member("y")
    stage.run_until(lambda: not _quarantined(stage, "m"), 15.0, "m is trusted again")
    stage.finish()


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_wiped_member_is_refilled_and_trusted_when_all_met_it(name: str) -> None:
    """Any one member, the leader too, may lose its disk and come back by itself."""
    stage = Stage("abc").formed()
    stage.put_all("a", [f"v{i}" for i in range(30)])
    stage.settle()
    _wipe(stage, name)
    stage.run_until(
        lambda: stage.members[name].role in (Role.FOLLOWER, Role.LEADER), 15.0, "it is trusted"
    )
    stage.finish()


def test_a_lost_genesis_is_sent_again() -> None:
    """A wiped member may have echoed a hello that was meant for its life before, without it."""
    stage = Stage("abc").formed()
    stage.put("a", "v")
    stage.settle()
    lost: set[str] = set()

    def loses(source: str, _target: str, message: messages.Message) -> bool:
        told = isinstance(message, messages.Hello) and bool(message.genesis)
        if told:
            lost.add(source)
        return told

    stage.filters.append(loses)
    _wipe(stage, "c")
    stage.run_for(1.0)
    assert (lost, stage.members["c"].role) == ({"a", "b"}, Role.UNFORMED)
    stage.filters.clear()
    stage.run_until(lambda: stage.members["c"].role is Role.FOLLOWER, 15.0, "it is trusted")
    assert not stage.counts["started anew"], "it was refilled instead"
    stage.finish()


def test_answers_that_overtake_the_hello_of_a_new_life_count_for_nothing() -> None:
    """They would be taken for the wiped life's, which seems to have forgotten what it said."""
    stage = Stage("abc").formed()
    stage.put("a", "v")
    stage.settle()
    leader = stage.leader
    overtaken: list[messages.Message] = []
    answered: list[messages.Message] = []

    def loses(source: str, target: str, message: messages.Message) -> bool:
        if (source, target) != ("c", leader) or answered:
            return False
        if isinstance(message, messages.AppendAnswer):
            answered.append(message)
        is_news = isinstance(message, messages.Hello) and message.group_id
        if is_news:
            overtaken.append(message)
        return bool(is_news)

    stage.filters.append(loses)
    _wipe(stage, "c")
    stage.run_until(lambda: stage.members["c"].role is Role.FOLLOWER, 15.0, "it is trusted")
    assert overtaken, "the hello was lost"
    assert answered, "the answer arrived"
    stage.finish()


def test_quarantine_lasts_while_one_member_cannot_be_reached() -> None:
    """(a) asks every other configured member, not a majority of them."""
    stage = Stage("abcde").formed()
    stage.put("a", "v")
    stage.settle()
    stage.members["e"].kill()
    _wipe(stage, "d")
    stage.run_for(10.0)
    assert _quarantined(stage, "d")
    assert stage.leader, "the others serve"
    stage.start_member("e")
    stage.run_until(lambda: not _quarantined(stage, "d"), 15.0, "d is trusted again")
    stage.finish()


def test_an_operator_lifts_a_quarantine() -> None:
    """The command names the risk; it survives a restart."""
    stage = Stage("abc").formed()
    stage.put("a", "v")
    stage.settle()
    stage.isolate("b")
    _wipe(stage, "c")
    stage.join("c")
    stage.cut("b", "c")
    stage.cut("a", "b")
    stage.run_for(5.0)
    assert _quarantined(stage, "c")
    process = stage.members["c"].process
    assert process is not None
    stage.members["c"].input(process.group.lift_quarantine, MemberId("c"), RISK_SENTENCE)
    stage.run_until(lambda: bool(stage.leader), 15.0, "a and c lead again")
    put = stage.put(stage.leader, "w")
    stage.run_until(lambda: put.stored, 5.0, "they serve")
    stage.finish()


def test_an_empty_group_does_not_form_without_all() -> None:
    """There is no bootstrap flag: two empty members of three wait for the third."""
    stage = Stage("abc", start="ab")
    stage.run_for(10.0)
    assert not stage.leader
    stage.start_member("c")
    stage.run_until(lambda: bool(stage.leader), 10.0, "the group forms")


def test_a_restarted_member_whose_greeting_is_lost_is_heard_in_the_end() -> None:
    """Sim seed 339: the last hello of a new process was lost; its peer echoed the state number of
    the process before, equal by chance, so the new one believed itself known and stayed silent:
    its acknowledgements were dropped for ever.
    """
    stage = Stage("abc").formed()
    lost: list[messages.Message] = []
    for restart in range(3):
        stage.members["c"].kill()
        stage.run_for(0.05)
        lost.clear()

        def lose(source: str, target: str, message: messages.Message) -> bool:
            greets = (source, target) == ("c", "a") and isinstance(message, messages.Hello)
            if greets and isinstance(message, messages.Hello) and message.echo_session:
                lost.append(message)
                return len(lost) == 1
            return False

        stage.filters[:] = [lose]
        stage.start_member("c")
        stage.run_for(0.5)
        put = stage.put("a", f"v{restart}")
        stage.run_until(lambda put=put: put.stored, 2.0, "it is stored")  # type: ignore[misc]
        stage.run_until(stage._converged, 5.0, "c follows and is heard")
        process = stage.members["a"].process
        assert process is not None

        def is_heard(process: Process = process) -> bool:
            matches = {peer.member: peer.match_index for peer in process.group.status().peers}
            return matches[MemberId("c")] == process.log.last_index

        stage.run_until(is_heard, 5.0, "its acknowledgements arrive")
    stage.finish()
