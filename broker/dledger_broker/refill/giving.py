"""What a member gives to a peer that is refilled: committed entries, and a dump of its saved state.

Owns the two streams. Entries are read as for replication: each byte is checked before it leaves
(I15), and only committed entries that this member has on disk leave. So a giver need not lead. The
dump is a file of its own, so a stream that broke goes on where it was. One dump is kept for each
peer, until it was sent or this process ends.

Not owned: who may ask (`PeerListener.greet`), what the receiver makes of it (`receiving.py`).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from google.protobuf.message import Message

from dledger.files import FileSystem
from dledger.log.space import is_full
from dledger.raft.driver.peer_listener import LinkTarget
from dledger.raft.wire import loading
from dledger.refill.state_dump import write_dump
from dledger.store.store import StateStore
from dledger.types import LogIndex, MemberId
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_TARGET, KIB
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import peers_pb2 as pb

DUMPS_FOLDER: Final = "dumps"
"""In the data folder; emptied when a group starts."""
CHUNK_BYTES: Final = 256 * KIB
_DUMP_ID_SIZE: Final = 16

Greet = Callable[[Mapping[str, str]], tuple[str, MemberId, LinkTarget]]


@dataclass(slots=True)
class _Dump:
    """A dump of the state, and its file."""

    name: bytes
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Given:
    """What one group gives from."""

    view: GroupView
    store: StateStore
    file_system: FileSystem
    folder: str
    """The group's data folder."""


class Giving:
    """The giver's end of refills, for all groups of a process."""

    def __init__(self, greet: Greet, random: Random) -> None:
        self._greet = greet
        self._random = random
        self._groups: dict[str, Given] = {}
        self._dumps: dict[tuple[str, MemberId], _Dump] = {}
        self._streams: dict[tuple[str, MemberId], int] = {}
        """The newest stream of each peer: an older one ends."""

    def add_group(self, group: str, given: Given) -> None:
        """Give from a group from here on. Dumps of an earlier process are removed."""
        folder = f"{given.folder}/{DUMPS_FOLDER}"
        if given.file_system.exists(folder):
            for name in given.file_system.names(folder):
                given.file_system.unlink(f"{folder}/{name}")
        self._groups[group] = given

    def handlers(self) -> raw.RawService:
        """Return what a gRPC server registers."""
        return raw.raw_handlers(
            raw.PEERS_SERVICE,
            {
                "ReadLog": raw.ReadMethod(self._read_log),
                "ReadState": raw.ReadMethod(self._read_state),
            },
        )

    async def _read_log(self, request: bytes, context: raw.RawContext) -> None:
        try:
            stream = self._begin(context)
            await self._send_log(stream, status.parsed(pb.ReadLogRequest, request))
        except DledgerError as error:
            await status.abort(context, error)

    async def _read_state(self, request: bytes, context: raw.RawContext) -> None:
        try:
            stream = self._begin(context)
            await self._send_state(stream, status.parsed(pb.ReadStateRequest, request))
        except DledgerError as error:
            await status.abort(context, error)

    def _begin(self, context: raw.RawContext) -> "_Stream":
        said = {key: str(value) for key, value in context.invocation_metadata() or ()}
        group, peer, _ = self._greet(said)
        number = self._streams[group, peer] = self._streams.get((group, peer), 0) + 1
        return _Stream(
            group, peer, self._groups[group], context,
            lambda: self._streams[group, peer] == number,
        )  # fmt: skip

    async def _send_log(self, stream: "_Stream", request: pb.ReadLogRequest) -> None:
        view = stream.given.view
        log = view.log
        index = request.from_index or log.first_index
        if log.is_empty or index < log.first_index:
            raise DledgerError(
                Code.HEAD_TRIMMED, f"the log begins at entry {log.first_index}, not at {index}"
            )
        last = min(view.host.group.commit_index, log.durable_index)
        base = log.base
        await stream.send(
            pb.ReadLogPart(
                group_id=log.group_id,
                base=pb.LogBase(
                    index=base.index, position=base.position, crc=base.crc, term=base.term
                ),
                first_index=index,
                commit_index=last,
                left_bytes=log.size_between(LogIndex(index), last) if index <= last else 0,
            )
        )
        sent = 0
        while index <= last and sent < request.max_bytes and stream.is_newest():
            frames, index = await self._entries(view, index, last)
            sent += len(frames)
            await stream.send(pb.ReadLogPart(frames=frames))

    async def _entries(self, view: GroupView, index: int, last: LogIndex) -> tuple[bytes, int]:
        """Return some entries from `index` on, and the index behind them."""
        log = view.log
        if index < log.first_index:
            raise DledgerError(Code.HEAD_TRIMMED, f"the log begins at entry {log.first_index} now")
        # `payload` knows nothing of the commit index: bound it by bytes.
        size = min(FRAME_SIZE_TARGET, log.size_between(LogIndex(index), last))
        try:
            payload = log.payload(LogIndex(index), size)
            if payload.buffers is not None:
                return b"".join(payload.buffers), payload.last + 1
            data = await asyncio.get_running_loop().run_in_executor(
                view.pool, loading.read_payload, payload, log
            )
            if data is None:
                loading.check_payload_held(payload, log)
                raise DledgerError(Code.HEAD_TRIMMED, f"entry {index} was trimmed meanwhile")
        except STORAGE_ERRORS as error:
            view.host.failed(error)
            raise DledgerError(Code.STORAGE_FAILED, str(error)) from error
        return data, payload.last + 1

    async def _send_state(self, stream: "_Stream", request: pb.ReadStateRequest) -> None:
        given = stream.given
        loop = asyncio.get_running_loop()
        dump = self._dumps.get((stream.group, stream.peer))
        offset = request.offset
        if dump is None or dump.name != request.dump or offset > dump.size:
            dump, offset = await self._dump(stream), 0
        file = given.file_system.open(dump.path)
        try:
            while stream.is_newest():
                size = min(CHUNK_BYTES, dump.size - offset)
                chunk = await loop.run_in_executor(given.view.pool, file.pread, size, offset)
                await stream.send(
                    pb.ReadStatePart(dump=dump.name, size=dump.size, offset=offset, chunk=chunk)
                )
                offset += len(chunk)
                if offset >= dump.size:
                    break
        finally:
            file.close()
        if offset >= dump.size and self._dumps.get((stream.group, stream.peer)) is dump:
            del self._dumps[stream.group, stream.peer]
            given.file_system.unlink(dump.path)

    async def _dump(self, stream: "_Stream") -> _Dump:
        """Write the saved state to a file of this peer. DISK_FULL when it is low on space."""
        given = stream.given
        if given.view.log.space.low:
            raise DledgerError(Code.DISK_FULL, "the giver's disk is low")
        folder = f"{given.folder}/{DUMPS_FOLDER}"
        path = f"{folder}/{stream.peer}"

        def write() -> int:
            given.file_system.make_folder(folder)
            return write_dump(given.file_system, path, given.store.saved_rows())

        self._dumps.pop((stream.group, stream.peer), None)
        name = self._random.randbytes(_DUMP_ID_SIZE)
        try:
            size = await asyncio.get_running_loop().run_in_executor(given.view.pool, write)
        except OSError as error:
            if not is_full(error):
                given.view.host.failed(error)  # the state cannot be read, or the disk is broken
            code = Code.DISK_FULL if is_full(error) else Code.STORAGE_FAILED
            raise DledgerError(code, f"the state cannot be dumped: {error}") from error
        dump = self._dumps[stream.group, stream.peer] = _Dump(name, path, size)
        return dump


class _Stream:
    """One stream to a peer."""

    def __init__(
        self,
        group: str,
        peer: MemberId,
        given: Given,
        context: raw.RawContext,
        is_newest: Callable[[], bool],
    ) -> None:
        self.group = group
        self.peer = peer
        self.given = given
        self.is_newest = is_newest
        self._write = within_stall_limit(context.write, "ask again")

    async def send(self, part: Message) -> None:
        """Send one part; waits while the receiver is slower, BUSY when it stands still."""
        await self._write(part.SerializeToString())
