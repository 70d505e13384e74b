"""How a member is refilled: it gathers log and state from a peer, then the member starts anew.

Owns when a refill begins and ends, from whom it comes and how fast. The giver is a follower where
one answers, so the leader has no more to do. A refill goes on after broken streams, with another
giver, and after the end of this process. It changes nothing of the group: this member goes on as
it was, in quarantine if it was (D18), until `finish` marks a whole refill when the group stops.

Not owned: what is staged (`dledger.refill.staging`), the exchange of the data
(`dledger.refill.install`), the giver's end (`giving.py`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, TypeVar

import grpc
import structlog

from dledger.log.atomic_file import CorruptFile
from dledger.log.errors import DamagedFile, LogFailed
from dledger.log.memory.chain import Chain
from dledger.raft.driver.worker import StartWorker, Worker
from dledger.raft.links.greeting import LinkIdentity
from dledger.refill.staging import Staging
from dledger.types import LogIndex, MemberId, Position, Term
from dledger_broker.cluster.channels import Channels
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.refill.givers import Giver, givers_of
from dledger_proto.entry import CorruptEntry
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import peers_pb2 as pb

LOOK_SECONDS: Final = 1.0
"""How often a member looks whether it needs a refill, and how soon it tries again."""
ROUND_BYTES: Final = 64 * MIB
"""One stream carries so much of the log. Then the member looks again whether it still needs it."""
PART_SECONDS: Final = 30.0
"""A giver that sends nothing for so long is given up."""
DUMP_SECONDS: Final = 3_600.0
"""So long a giver may write its state down."""
NEAR_BYTES: Final = 16 * MIB
"""With less of the log missing the state is fetched: little is left to apply afterwards."""

Result = TypeVar("Result")
_FAILURES: Final = (
    DledgerError, CorruptEntry, CorruptFile, DamagedFile, LogFailed, OSError,
    TimeoutError,
)  # fmt: skip


class Refill:
    """The refill of one group on one member, when it needs one."""

    def __init__(
        self,
        view: GroupView,
        staging: Staging,
        identity: LinkIdentity,
        channels: Channels,
        start_worker: StartWorker,
        random: Random,
        bytes_per_second: int,
    ) -> None:
        self._view = view
        self._staging = staging
        self._identity = identity
        self._channels = channels
        self._start_worker = start_worker
        self._random = random
        self._bytes_per_second = bytes_per_second
        self._worker: Worker | None = None
        self._free_at = 0.0
        """When the rate allows the next part."""
        self._counted_at = 0.0
        """When the part before was counted, or the stream began: the way of the next one counts."""
        self._dump: tuple[MemberId, bytes] = (MemberId(""), b"")
        """Whose dump is staged in part."""
        self._is_gathered = False
        self._may_be_staged = True
        """An earlier process may have left something."""
        self.says = ""
        """What goes on, for people; empty when nothing does."""
        self.left_bytes = 0
        """Of the log, which the giver has and this member has yet to fetch."""
        self.on_gathered: Callable[[], None] = lambda: None
        """Called when all is there: the member should stop and start anew."""
        self._quiet = Quiet(view.clock)
        names = view.names
        self._log = structlog.get_logger().bind(group=names.group, member=names.member)

    async def run(self) -> None:
        """Go on until a refill is gathered, or cancelled."""
        while not self._is_gathered:
            await asyncio.sleep(LOOK_SECONDS)
            group = self._view.host.group
            if group.is_filled:
                await self._give_up()
            elif group.needs_refill(self._view.clock.monotonic()):
                await self._try_all()

    async def stop(self) -> None:
        """Wait for what is being staged. The task of `run` has been cancelled before."""
        if self._worker is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._worker.stop)

    def finish(self, own_last_index: int, own_group_id: bytes) -> None:
        """Mark the refill as whole, if it is. Blocks. The own log has been closed before.

        OSError, LogFailed when the disk refuses.
        """
        if not self._is_gathered:
            self._staging.let_go()
            return
        why_not = self._staging.complete(own_last_index, own_group_id)
        if why_not:
            self._log.warning("the refill is not used", reason=why_not)
            self._staging.discard()

    async def _give_up(self) -> None:
        """Drop what was staged: the leader fills this member after all."""
        if self._may_be_staged:
            await self._do(self._staging.discard)
            self._may_be_staged = False
            self.says, self.left_bytes = "", 0

    async def _try_all(self) -> None:
        """Try each giver once. What no giver can go on with is dropped."""
        misfits = 0
        givers = givers_of(self._view, self._identity, self._random)
        for giver in givers:
            try:
                await self._gather(giver)
            except _FAILURES as error:
                misfits += isinstance(error, CorruptEntry) or _is_of_another_group(error)
                reason = str(error) or type(error).__name__
                self.says = f"the refill from {giver.member} stopped: {reason}"
                left_out = self._quiet.admit("stopped")
                if left_out is not None:
                    self._log.warning(
                        "refill interrupted", giver=giver.member, reason=reason, others=left_out
                    )
                if isinstance(error, OSError | DledgerError | DamagedFile):
                    await self._do(self._staging.let_go)  # its log may have failed
                continue
            return
        if givers and misfits == len(givers):
            await self._do(self._staging.discard)

    @property
    def _is_still_needed(self) -> bool:
        return not self._view.host.group.is_filled

    # Gathering.

    async def _gather(self, giver: Giver) -> None:
        """Fetch what is missing; return early when the leader fills this member after all."""
        staging = self._staging
        self._may_be_staged = True
        if not staging.is_begun:
            await self._do(staging.resume)
        while self._is_still_needed:
            left = await self._read_log(giver)
            if left <= NEAR_BYTES:
                break
        else:
            return
        own_last = self._view.log.last_index
        if staging.log.last_index < own_last:
            # Entries of an earlier reign that were never committed: wait for more that are.
            raise DledgerError(
                Code.UNAVAILABLE,
                f"{giver.member} has committed {staging.log.last_index}, the own log ends at "
                f"{own_last}",
            )
        await self._read_state(giver)
        # What the state has applied was committed at the giver before the dump was asked for.
        await self._read_log(giver)
        why_not = await self._do(staging.check_state)
        if why_not:
            self._dump = (MemberId(""), b"")
            raise DledgerError(Code.UNAVAILABLE, why_not)
        self._is_gathered = True
        last = staging.log.last_index
        self.says = f"refilled from {giver.member} up to entry {last}, starting anew"
        self._log.info("refill gathered", giver=giver.member, last_index=last)
        self.on_gathered()

    async def _read_log(self, giver: Giver) -> int:
        """Fetch a round of entries; return how many bytes are left to fetch."""
        staging = self._staging
        next_index = staging.log.last_index + 1 if staging.is_begun else 0
        request = pb.ReadLogRequest(from_index=next_index, max_bytes=ROUND_BYTES)
        call = self._call(giver, raw.READ_LOG, request.SerializeToString())
        try:
            head = await self._part(call, pb.ReadLogPart) or pb.ReadLogPart()
            await self._check_head(head)
            left, taken = head.left_bytes, 0
            while (
                taken < ROUND_BYTES and (part := await self._part(call, pb.ReadLogPart)) is not None
            ):
                _check_bytes(part.frames)
                await self._do(partial(staging.append, part.frames))
                left -= len(part.frames)
                taken += len(part.frames)
                self._tell(giver, head.commit_index, left)
                await self._keep_rate(len(part.frames))
        except DledgerError as error:
            if error.code is Code.HEAD_TRIMMED and staging.is_begun:
                await self._do(staging.discard)  # what follows is gone: begin anew
            raise
        finally:
            call.cancel()
        if left > 0 and not taken:
            raise DledgerError(Code.UNAVAILABLE, "the stream ended before its entries")
        return left

    async def _check_head(self, head: pb.ReadLogPart) -> None:
        """Begin a staged log, unless there is one; WRONG_CLUSTER for another group's entries.

        UNAVAILABLE when the stream ended before its first part.
        """
        if not head.group_id:
            raise DledgerError(Code.UNAVAILABLE, "the stream ended before its first part")
        staging = self._staging
        known = self._view.log.group_id or (staging.log.group_id if staging.is_begun else b"")
        if known and head.group_id != known:
            raise DledgerError(
                Code.WRONG_CLUSTER,
                f"the giver is of group id {head.group_id.hex()}, this is {known.hex()}",
            )
        if not staging.is_begun:
            said = head.base
            base = Chain(LogIndex(said.index), Position(said.position), said.crc, Term(said.term))
            await self._do(partial(staging.begin, base, head.group_id))

    async def _read_state(self, giver: Giver) -> None:
        """Fetch the dump of the state, from where a broken stream of it stopped."""
        staging = self._staging
        whose, dump = self._dump
        offset = staging.state_size if whose == giver.member else 0
        request = pb.ReadStateRequest(dump=dump if offset else b"", offset=offset)
        call = self._call(giver, raw.READ_STATE, request.SerializeToString())
        size = None
        began = self._view.clock.monotonic()
        try:
            while (part := await self._part(call, pb.ReadStatePart)) is not None:
                self._dump = (giver.member, part.dump)
                if not part.size:
                    self.says = f"refill from {giver.member}: it writes its state down"
                    await self._wait_for_dump(began)
                    continue
                _check_bytes(part.chunk)
                size, offset, chunk = part.size, part.offset, part.chunk
                await self._do(partial(staging.append_state, offset, chunk))
                self.says = (
                    f"refill from {giver.member}: state, {staging.state_size} of {size} bytes"
                )
                await self._keep_rate(len(chunk))
        finally:
            call.cancel()
        if staging.state_size != size:
            raise DledgerError(Code.UNAVAILABLE, "the stream of the state ended too early")

    async def _wait_for_dump(self, began: float) -> None:
        """Check that it is worth to wait for a dump that is being written."""
        if self._view.clock.monotonic() - began > DUMP_SECONDS:
            raise DledgerError(Code.UNAVAILABLE, f"no state within {DUMP_SECONDS:.0f} s")
        await self._keep_rate(0)

    def _tell(self, giver: Giver, commit_index: int, left: int) -> None:
        rate, self.left_bytes = self._bytes_per_second, left
        self.says = (
            f"refill from {giver.member}: entries up to {self._staging.log.last_index} of "
            f"{commit_index}, {left / MIB:.0f} MiB left, at most {rate / MIB:.0f} MiB/s"
        )

    # Edges.

    def _call(self, giver: Giver, method: str, request: bytes) -> raw.RawReadCall:
        self._counted_at = self._view.clock.monotonic()
        channel = self._channels.to(giver.callee)
        return raw.raw_read(channel, method)(request, metadata=giver.greeting)

    async def _part(self, call: raw.RawReadCall, kind: type[Result]) -> Result | None:
        try:
            async with asyncio.timeout(PART_SECONDS):
                data = await raw.read_frame(call)
        except grpc.RpcError as error:
            raise status.from_rpc_error(error, write=False) from error
        return None if data is None else status.parsed(kind, data)  # type: ignore[type-var]

    async def _keep_rate(self, size: int) -> None:
        """Wait until the rate allows more; DISK_FULL when this member's own disk is low."""
        if self._view.log.space.low:
            raise DledgerError(Code.DISK_FULL, "the disk of this member is low")
        now = self._view.clock.monotonic()
        self._free_at = max(self._free_at, self._counted_at) + size / self._bytes_per_second
        self._counted_at = now
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)

    async def _do(self, job: Callable[[], Result]) -> Result:
        """Run a job of the staging in a thread of its own; one at a time."""
        if self._worker is None:
            self._worker = self._start_worker(f"refill {self._view.names.group}")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def done(result: Result | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

        self._worker.submit(job, done)
        return await future


def _is_of_another_group(error: Exception) -> bool:
    return isinstance(error, DledgerError) and error.code is Code.WRONG_CLUSTER


def _check_bytes(data: bytes) -> None:
    """Refuse a part that brings nothing: a stream of such parts would never end."""
    if not data:
        raise DledgerError(Code.UNAVAILABLE, "the giver sent a part without bytes")
