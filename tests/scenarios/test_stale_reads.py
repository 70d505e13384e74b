"""A leader that others have replaced unheard of must not confirm a read with an old answer (F16).

On the harness of the group's unit tests: it delivers single messages.
"""

from dledger.raft.api import Role
from dledger.raft.wire.messages import AppendAnswer
from dledger.types import LogIndex
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import World

Answers = list[tuple[LogIndex | None, str]]


def test_an_answer_to_what_was_sent_before_confirms_no_read() -> None:
    """a stops (SIGSTOP) with an answer of its reign unread, and reads it after it was replaced."""
    world = World()
    a = world.elect("a")
    world.run(0.3)
    world.held = {("b", "a"), ("c", "a")}
    world.run(0.15)
    kept = world.waiting("b", "a")
    assert any(isinstance(answer, AppendAnswer) for answer in kept), "an answer is on its way"
    a.paused = True
    world.until_led(5.0, other_than=a)
    put = world.leader.put(b"elsewhere")
    world.until(lambda: put.outcome is Outcome.STORED)
    a.paused = False
    assert a.role is Role.LEADER, "it has not heard of the other"
    answers: Answers = []
    a.group.read_barrier(lambda index, why: answers.append((index, why)), world.now)
    a.drain()
    world.deliver("b", "a", len(kept))
    assert not [index for index, _ in answers if index is not None], (
        f"a confirms {answers}, index {put.settled[0].index} was acknowledged before"
    )
    world.held.clear()
    world.until(lambda: bool(answers))
    index = answers[0][0]
    assert index is None or index >= put.settled[0].index
