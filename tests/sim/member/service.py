"""What a simulated member answers to clients: the broker's use cases without gRPC.

Owns: turning a request into proposals, barriers and reads of the state, and an outcome into an
answer (D9, D10, D11). No member refuses on its own possibly old state: it takes a read barrier
first. Forwarding is left out; clients follow the hint themselves.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dledger.raft.api import OnBarrier, Role
from dledger.state import results
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.events import Applied
from dledger.state.machine import StateMachine
from dledger.state.offsets import CommitOffset as CommittedOffset
from dledger.state.offsets import CommitOffsets
from dledger.state.producers.registration import RegisterProducer
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.topics import commands as topic_commands
from dledger.state.values import LayoutPart, TopicType
from dledger.types import EntryKind, LogIndex, Settled
from dledger_broker.group.duties import duties
from dledger_broker.group.duty import EVERYTHING, Duty, Look
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.read.batches import DamagedBatch, read_batches
from dledger_proto.errors import Code, DledgerError, Outcome
from dledger_proto.rpc.frames import AnswerRow, parse_append
from tests.sim.clients.lookups import LookupId, LookupKey, LookupOffset, LookupTime, look_up
from tests.sim.clients.requests import (
    Append,
    AppendFrame,
    CommitOffset,
    CreateTopic,
    Fetch,
    Fetched,
    FetchedBatch,
    HoldQueue,
    ReadBounds,
    ReadOffset,
    Register,
    Registered,
    Taken,
    TrimQueue,
)
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.calls import Answer, Respond

if TYPE_CHECKING:
    from tests.sim.member.process import Process

APPLY_POLL: Final = 0.005
"""How often a read that waits for apply looks again, virtual seconds."""
APPLY_WAIT_MAX: Final = 5.0
DUPLICATE: Final = "duplicate"
EXPIRY_MS: Final = 600_000
"""Longer than any world lasts: no producer counts as silent."""
DUTY_PERIOD_MAX: Final = 3.0


class Service:
    """What one process answers to clients."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.member.world
        self._machine: StateMachine = process.machine
        self._polls = LongPoll()
        self.duties = duties(EXPIRY_MS, period_max=DUTY_PERIOD_MAX)
        self._machine.events.subscribe(self._wake_readers)

    def _wake_readers(self, applied: Applied) -> None:
        for queue in applied.grown:
            self._polls.arrived(*queue.id)

    def serve(self, request: object, respond: Respond) -> None:
        """Answer a request, now or later."""
        match request:
            case Append(batch):
                self._propose(EntryKind.BATCHES, batch, respond, _append_answer)
            case AppendFrame():
                self._append_frame(request)
            case Register(producer_id, life_id, epoch):
                register = RegisterProducer(producer_id, life_id, epoch)
                self._command(register, respond, _register_answer)
            case CommitOffset(group, queue, offset, reset):
                wanted = CommittedOffset(queue[0], queue[1], offset)
                commit = CommitOffsets(group, (wanted,), reset)
                self._command(commit, respond, _commit_answer)
            case CreateTopic(name, topic_id, queues):
                layout = (LayoutPart("g", queues),)
                create = topic_commands.CreateTopic(
                    topic_id, name, TopicType.NORMAL, layout, queues, 6
                )
                self._command(create, respond, _plain_answer)
            case TrimQueue(queue, offset):
                self._command(Trim(queue[0], queue[1], offset), respond, _plain_answer)
            case HoldQueue(owner, queue, offset, seconds):
                now_ms = self._process.group.time_ms
                if now_ms is None:
                    respond(Answer(Code.NO_LEADER))
                    return
                until_ms = now_ms + int(1_000 * seconds)
                self._world.invariants.trims.asked(owner, queue, until_ms, seconds)
                hold = Hold(owner, queue[0], queue[1], offset, until_ms)
                release = ReleaseHold(owner, queue[0], queue[1])
                self._command(hold if seconds else release, respond, _plain_answer)
            case LookupKey() | LookupId() | LookupTime() | LookupOffset():
                self._confirmed(respond, lambda: look_up(self._process, request))
            case Fetch():
                self._fetch(request, respond, fresh=False)
            case ReadBounds(queue):
                self._confirmed(respond, lambda: self._machine.queries.queue_bounds(*queue))
            case ReadOffset(group, queue):
                self._confirmed(respond, lambda: self._group_offset(group, queue))
            case _:
                raise AssertionError(f"no such request: {request}")

    # Writes.

    def _command(
        self, wanted: Command[object], respond: Respond, answer: Callable[[object], Answer]
    ) -> None:
        body, frees_space = encode(wanted), wanted.frees_space
        self._propose(EntryKind.COMMANDS, body, respond, answer, frees_space=frees_space)

    def _propose(
        self,
        kind: EntryKind,
        payload: bytes,
        respond: Respond,
        answer: Callable[[object], Answer],
        *,
        frees_space: bool = False,
    ) -> None:
        process = self._process

        def settled(outcome: Settled) -> None:
            if process.ended:
                return
            self._world.settled(process, outcome)
            if outcome.outcome is Outcome.STORED:
                (result,) = outcome.results
                respond(answer(result))
            else:
                respond(Answer(outcome.code, hint=self._hint(), detail=outcome.detail))

        if process.group.role is not Role.LEADER:
            respond(Answer(Code.NOT_LEADER, hint=self._hint()))
            return
        process.group.propose(kind, [payload], settled, frees_space=frees_space)

    def _hint(self) -> str:
        leader = self._process.group.leader
        return leader if leader is not None and leader != self._process.name else ""

    def _append_frame(self, request: AppendFrame) -> None:
        """Answer each batch of a stream's frame by a row, unless it is one-way."""
        header, batches = parse_append(request.frame)
        for place, batch in enumerate(batches):
            number = header.first_number + place

            def respond(answer: Answer, number: int = number) -> None:
                if not header.one_way:
                    request.answer(self._row(number, answer))

            self._propose(EntryKind.BATCHES, bytes(batch), respond, _append_answer)

    def _row(self, number: int, answer: Answer) -> AnswerRow:
        if answer.code is Code.OK:
            assert isinstance(answer.value, int)
            duplicate = answer.detail == DUPLICATE
            return AnswerRow(number, base_offset=answer.value, duplicate=duplicate)
        term = int(self._process.group.term)
        hint = f"{answer.hint}:1" if answer.hint else ""
        return AnswerRow(number, answer.code, detail=answer.detail, hint=hint, term=term)

    def look(self) -> Look:
        """Return what a duty looks at now. The group decides about its topics itself."""
        group, now = self._process.group, self._process.member.clock.monotonic()
        leads_term = int(group.term) if group.role is Role.LEADER else None
        return Look(leads_term, EVERYTHING, self._machine.queries, now)

    def propose_for(self, duty: Duty, command: Command[object]) -> None:
        """Propose what a duty wants until it wants no more; see `dledger_broker.process.upkeep`."""

        def done(answer: Answer) -> None:
            rest = duty.rest(answer.value) if answer.code is Code.OK else None
            if rest is not None:
                self.propose_for(duty, rest)

        self._command(command, done, _plain_answer)

    # Reads.

    def _confirmed(self, respond: Respond, read: Callable[[], object]) -> None:
        """Read after a barrier that a quorum confirmed and this member applied (D9)."""
        process = self._process

        def done(index: LogIndex | None, reason: str) -> None:
            if index is None:
                respond(Answer(Code.NO_LEADER, detail=reason))
            elif not process.ended:
                deadline = self._world.scheduler.now + APPLY_WAIT_MAX
                self._when_applied(index, deadline, lambda: _try(read, respond), respond)

        self._barrier(done)

    def _barrier(self, done: OnBarrier) -> None:
        """Ask the group; whatever was committed anywhere by now must be covered (D9)."""
        floor = self._world.facts.committed_last
        name = self._process.name

        def confirmed(index: LogIndex | None, reason: str) -> None:
            if index is not None and index < floor:
                raise Violation(
                    Property.REAL_TIME_READS,
                    f"{name} reads up to {index}, {floor} was committed when it asked",
                )
            done(index, reason)

        self._process.group.read_barrier(confirmed, self._process.member.clock.monotonic())

    def _when_applied(
        self, index: LogIndex, deadline: float, then: Callable[[], None], respond: Respond
    ) -> None:
        process = self._process
        if process.ended:
            return
        if process.machine.applied_index >= index:
            process.guard(then)  # reads may find damage
        elif self._world.scheduler.now > deadline:
            respond(Answer(Code.BUSY, detail="apply is behind"))
        else:
            self._world.scheduler.after(
                APPLY_POLL, self._when_applied, index, deadline, then, respond
            )

    def _group_offset(self, group: str, queue: tuple[bytes, int]) -> int:
        stored = self._machine.queries.read_group_offset(group, queue[0], queue[1])
        return -1 if stored is None else int(stored.offset)

    def _fetch(self, request: Fetch, respond: Respond, *, fresh: bool) -> None:
        queue, offset = request.queue, request.offset
        try:
            minimum, maximum = self._machine.queries.queue_bounds(*queue)
        except DledgerError as error:
            self._look_again(request, respond, error.code, None, fresh=fresh)
            return
        bounds = Fetched(int(minimum), int(maximum), ())
        if offset < minimum:
            respond(Answer(Code.OFFSET_OUT_OF_RANGE, bounds))
            return
        if offset > maximum:
            self._look_again(request, respond, Code.OFFSET_OUT_OF_RANGE, bounds, fresh=fresh)
            return
        spans = self._machine.queries.spans(queue[0], queue[1], offset, request.max_bytes)
        try:
            found = read_batches(self._process.log, spans)
        except DamagedBatch as error:  # as the broker: the member ends, `dledger repair` follows
            self._process.member.found_damage(error)
            return
        batches = tuple(
            FetchedBatch(int(span.base_offset), span.first_record, span.record_count, bytes(data))
            for span, data in zip(spans, found, strict=True)
        )
        if batches or not request.wait:
            respond(Answer(Code.OK, Fetched(int(minimum), int(maximum), batches)))
        else:
            self._wait(request, respond)

    def _wait(self, request: Fetch, respond: Respond) -> None:
        """Answer when something arrives, or when the time is over."""
        scheduler, world = self._world.scheduler, self._world
        now_empty = replace(request, wait=0.0)

        def woken() -> None:
            world.counts["long polls woken"] += 1
            over.cancel()
            # Inside apply: the reader's turn comes after it.
            scheduler.after(0.0, self._fetch_again, now_empty, respond)

        def give_up() -> None:
            self._polls.cancel(ticket)
            if self._process.ended:
                return
            _, maximum = self._machine.queries.queue_bounds(*request.queue)
            if maximum != request.offset:
                raise Violation(
                    Property.LONG_POLL,
                    f"{self._process.name}: {request} slept, the queue ends at {maximum}",
                )
            self._fetch_again(now_empty, respond)

        ticket = self._polls.wait([request.queue], woken)
        over = scheduler.after(request.wait, give_up)

    def _fetch_again(self, request: Fetch, respond: Respond) -> None:
        self._process.guard(lambda: self._fetch(request, respond, fresh=False))

    def _look_again(
        self, request: Fetch, respond: Respond, code: Code, bounds: Fetched | None, *, fresh: bool
    ) -> None:
        if fresh:
            respond(Answer(code, bounds))
            return
        process = self._process

        def done(index: LogIndex | None, reason: str) -> None:
            if index is None:
                respond(Answer(Code.NO_LEADER, detail=reason))
            elif not process.ended:
                deadline = self._world.scheduler.now + APPLY_WAIT_MAX
                again = lambda: self._fetch(request, respond, fresh=True)  # noqa: E731
                self._when_applied(index, deadline, again, respond)

        self._barrier(done)


def _try(read: Callable[[], object], respond: Respond) -> None:
    try:
        respond(Answer(Code.OK, read()))
    except DledgerError as error:
        respond(Answer(error.code, detail=error.detail))


def _refused(result: object) -> Answer | None:
    if isinstance(result, results.Refused):
        return Answer(result.code, detail=result.detail)
    return None


def _append_answer(result: object) -> Answer:
    refused = _refused(result)
    if refused is not None:
        return refused
    assert isinstance(result, results.Appended)
    return Answer(Code.OK, int(result.base_offset), detail=DUPLICATE if result.duplicate else "")


def _register_answer(result: object) -> Answer:
    refused = _refused(result)
    if refused is not None:
        return refused
    if isinstance(result, results.Taken):
        return Answer(Code.OK, Taken(result.epoch))
    assert isinstance(result, results.Registered)
    last = {(row.topic_id, row.queue): row.last_sequence for row in result.last}
    return Answer(Code.OK, Registered(result.epoch, last))


def _commit_answer(result: object) -> Answer:
    refused = _refused(result)
    if refused is not None:
        return refused
    assert isinstance(result, results.OffsetsCommitted)
    return Answer(Code(result.codes[0]), int(result.stored_offsets[0]))


def _plain_answer(result: object) -> Answer:
    return _refused(result) or Answer(Code.OK, result)
