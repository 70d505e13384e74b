"""What a member gives to a peer that is refilled: committed entries, and a dump of its saved state.

Owns the two streams. Entries are read as for replication: each byte is checked before it leaves
(I15), and only committed entries that this member has on disk leave. So a giver need not lead. The
dump is a file of its own, written by a thread of its own, so a stream that broke goes on where it
was. One dump is kept for each peer: until it was sent, for ten minutes without a stream, or until
this process ends. No dump makes the disk low.

Not owned: who may ask (`PeerListener.greet`), what the receiver makes of it (`receiving.py`).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from google.protobuf.message import Message

from dledger.files import FileSystem
from dledger.log.space import is_full
from dledger.raft.driver.worker import StartWorker, Worker
from dledger.raft.links.peer_listener import LinkTarget
from dledger.raft.wire import loading
from dledger.refill.state_dump import write_dump
from dledger.store.store import Row, StateStore
from dledger.types import LogIndex, MemberId
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS
from dledger_broker.refill.single_entries import entries_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_TARGET, KIB
from dledger_proto.network.tls import names_of_caller
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import peers_pb2 as pb

DUMPS_FOLDER: Final = "dumps"
"""In the data folder; emptied when a group starts."""
CHUNK_BYTES: Final = 256 * KIB
ALIVE_SECONDS: Final = 5.0
"""While a dump is written, the receiver hears so often that it is."""
DUMP_KEPT_SECONDS: Final = 600.0
"""A dump that no stream has used for so long is dropped when the next one is wanted."""
ROWS_A_LOOK: Final = 4_096
"""After so many rows the thread looks at the disk, and whether the dump is still wanted."""
_DUMP_ID_SIZE: Final = 16

Greet = Callable[[Mapping[str, str], frozenset[str]], tuple[str, MemberId, LinkTarget]]


class _Dump:
    """A dump of the state: its file, and the thread's word on its size."""

    def __init__(self, name: bytes, path: str) -> None:
        self.name = name
        self.path = path
        self.size: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_dropped = False
        """Nobody wants it any more: the thread ends it."""
        self.used_at = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """What one group gives from."""

    view: GroupView
    store: StateStore
    file_system: FileSystem
    folder: str
    """The group's data folder."""
    start_worker: StartWorker


class Giving:
    """The giver's end of refills, for all groups of a process."""

    def __init__(self, greet: Greet, random: Random) -> None:
        self._greet = greet
        self._random = random
        self._groups: dict[str, Given] = {}
        self._dumps: dict[tuple[str, MemberId], _Dump] = {}
        self._workers: dict[str, Worker] = {}
        """The thread of each group that writes dumps; there is none before the first dump."""
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
                "ReadEntries": raw.ReadMethod(self._read_entries),
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

    async def _read_entries(self, request: bytes, context: raw.RawContext) -> None:
        try:
            group, _, _ = self._greet(_said_in(context), _names_in(context))
            given = self._groups[group]
            asked = status.parsed(pb.ReadEntriesRequest, request)
            write = within_stall_limit(context.write, "ask again")
            async for frames in entries_of(given.view, asked):
                await write(pb.ReadEntriesPart(frames=frames).SerializeToString())
        except DledgerError as error:
            await status.abort(context, error)

    def _begin(self, context: raw.RawContext) -> "_Stream":
        group, peer, _ = self._greet(_said_in(context), _names_in(context))
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
        left = _size_between(view, index, last)
        await stream.send(
            pb.ReadLogPart(
                group_id=log.group_id,
                base=pb.LogBase(
                    index=base.index, position=base.position, crc=base.crc, term=base.term
                ),
                first_index=index,
                commit_index=last,
                left_bytes=left,
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
        size = min(FRAME_SIZE_TARGET, _size_between(view, index, last))
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
        clock = given.view.clock
        dump, offset = self._dump_for(stream, request)
        while not dump.size.done():
            await asyncio.wait([dump.size], timeout=ALIVE_SECONDS)
            await stream.send(pb.ReadStatePart(dump=dump.name))  # it is being written
        size = dump.size.result()
        if offset > size:
            raise DledgerError(Code.OFFSET_OUT_OF_RANGE, f"the dump has {size} bytes")
        while stream.is_newest() and not dump.is_dropped:
            dump.used_at = clock.monotonic()
            read = partial(_read_chunk, given.file_system, dump.path, offset, size)
            chunk = await asyncio.get_running_loop().run_in_executor(given.view.pool, read)
            part = pb.ReadStatePart(dump=dump.name, size=size, offset=offset, chunk=chunk)
            await stream.send(part)
            offset += len(chunk)
            if offset >= size:
                self._drop(stream.group, stream.peer)
                return

    def _dump_for(self, stream: "_Stream", request: pb.ReadStateRequest) -> tuple[_Dump, int]:
        """Return the dump that a peer asks for, or a new one, and where to go on in it."""
        dump = self._dumps.get((stream.group, stream.peer))
        if dump is not None and dump.name == request.dump:
            return dump, request.offset
        if dump is not None and not dump.size.done():
            return dump, 0
        self._drop_unused(stream.given)
        self._drop(stream.group, stream.peer)
        return self._write_dump(stream), 0

    def _write_dump(self, stream: "_Stream") -> _Dump:
        """Let the thread write the saved state to a file for this peer."""
        given, group, peer = stream.given, stream.group, stream.peer
        name = self._random.randbytes(_DUMP_ID_SIZE)
        folder = f"{given.folder}/{DUMPS_FOLDER}"
        dump = _Dump(name, f"{folder}/{peer}.{name.hex()}")
        dump.used_at = given.view.clock.monotonic()

        def write() -> int:
            given.file_system.make_folder(folder)
            return write_dump(given.file_system, dump.path, _bounded(given, dump))

        def done(size: int | None, error: BaseException | None) -> None:
            if error is None and size is not None:
                dump.size.set_result(size)
                return
            self._drop(group, peer, dump)
            dump.size.set_exception(_meaning_of(given, error))
            dump.size.exception()  # perhaps nobody waits

        if group not in self._workers:
            self._workers[group] = given.start_worker(f"dump {group}")
        self._dumps[group, peer] = dump
        self._workers[group].submit(write, done)
        return dump

    def _drop_unused(self, given: Given) -> None:
        now = given.view.clock.monotonic()
        for (group, peer), dump in list(self._dumps.items()):
            if dump.size.done() and now - dump.used_at > DUMP_KEPT_SECONDS:
                self._drop(group, peer)

    def _drop(self, group: str, peer: MemberId, dump: _Dump | None = None) -> None:
        """Forget a dump, and remove its file."""
        dump = dump or self._dumps.get((group, peer))
        if dump is None:
            return
        dump.is_dropped = True
        if self._dumps.get((group, peer)) is dump:
            del self._dumps[group, peer]
        file_system = self._groups[group].file_system
        if file_system.exists(dump.path):
            file_system.unlink(dump.path)

    async def stop(self, group: str) -> None:
        """End the thread of a group, before its store is closed."""
        for of_group, peer in [key for key in self._dumps if key[0] == group]:
            self._drop(of_group, peer)
        worker = self._workers.pop(group, None)
        if worker is not None:
            await asyncio.get_running_loop().run_in_executor(None, worker.stop)


def _size_between(view: GroupView, index: int, last: LogIndex) -> int:
    """Return the bytes of some entries; STORAGE_FAILED, and the host knows, when they are damaged.

    It may read headers from the disk.
    """
    if index > last:
        return 0
    try:
        return view.log.size_between(LogIndex(index), last)
    except STORAGE_ERRORS as error:
        view.host.failed(error)
        raise DledgerError(Code.STORAGE_FAILED, str(error)) from error


def _said_in(context: raw.RawContext) -> dict[str, str]:
    return {key: str(value) for key, value in context.invocation_metadata() or ()}


def _names_in(context: raw.RawContext) -> frozenset[str]:
    return names_of_caller(context.auth_context())


def _bounded(given: Given, dump: _Dump) -> Iterator[Row]:
    """Iterate over the saved rows while somebody wants the dump and the disk has room for it."""
    for count, row in enumerate(given.store.saved_rows()):
        if count % ROWS_A_LOOK == 0:
            if dump.is_dropped:
                raise DledgerError(Code.SHUTTING_DOWN, "the dump is not wanted any more")
            if not given.view.log.space.can_spare(0):
                raise DledgerError(Code.DISK_FULL, "the dump would make the giver's disk low")
        yield row


def _meaning_of(given: Given, error: BaseException | None) -> DledgerError:
    """Return what to tell a peer whose dump could not be written. A broken state ends the giver."""
    if isinstance(error, DledgerError):
        return error
    if isinstance(error, OSError) and is_full(error):
        return DledgerError(Code.DISK_FULL, f"the giver's disk is full: {error}")
    if isinstance(error, Exception):
        given.view.host.failed(error)
    return DledgerError(Code.STORAGE_FAILED, f"the state cannot be read: {error}")


def _read_chunk(file_system: FileSystem, path: str, offset: int, size: int) -> bytes:
    """Return the next piece of a dump. Blocks."""
    file = file_system.open(path)
    try:
        return file.pread(min(CHUNK_BYTES, size - offset), offset)
    finally:
        file.close()


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
