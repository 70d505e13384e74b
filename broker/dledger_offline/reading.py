"""Reads topics from the data folders of stopped members, without a running member.

Owns: which folders a path means, what is checked before they are read, ranges as Arrow batches. Not
owned: what edges mean (`dledger_client.reading.plan`), what is committed (`dledger.state.saved`).

Only what the saved state names is read. A member saves the state of applied entries only, and these
are committed. Behind them the log may hold entries that were never committed, and a torn tail. A
member that was stopped in order has saved everything. A member that was killed lacks the last half
second.

Nothing is written, and no lock is kept: a member may start while a job reads. The reader notices
this when it opens a folder, and when something does not fit. Otherwise the member does no harm:
each row and each batch passes its checksum, committed data never changes, and offsets are counted.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from dledger.log.atomic_file import CorruptFile, NewerFile
from dledger.log.folder import IDENTITY_FILE
from dledger.log.identity import Identity, parse_identity
from dledger.state.queues.table import NO_POSITION
from dledger.state.saved import SavedState
from dledger.state.topics.layout import queues_of
from dledger.state.values import PERMISSION_READ, QueueSpan, Topic
from dledger.store.store import DamagedStore, NewerStore, StoreFailed
from dledger.types import Position
from dledger.types import Span as LogSpan
from dledger_broker.read.batches import DamagedBatch, read_batches
from dledger_broker.read.plan_reads import sample_offsets
from dledger_client.arrow import Decoder, ExpectedQueue, Span
from dledger_client.arrow.schema import unknown
from dledger_client.errors import error_of
from dledger_client.reading import Edge, Hold, HoldRequest, Range, ReadPlan
from dledger_client.reading.folders import FolderCopy, FolderError, FolderOrigin, FolderProblem
from dledger_client.reading.plan import (
    Place,
    Question,
    QueueState,
    Sample,
    matching,
    question_of,
    resolve,
)
from dledger_client.unreadable import SPARK_REMEDY, Unreadable
from dledger_offline.folder import (
    find_data_folders,
    is_refusal,
    is_running,
    segment_files,
    state_folder,
)
from dledger_proto.entry import SEGMENT_HEADER_SIZE
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.segments import DamagedSegment, SegmentFile, SegmentReader

_LOG: Final = logging.getLogger("dledger_client")
READ_BYTES: Final = 4 * MIB
"""Bytes of batches that are read at a time."""
SAMPLES: Final = 64
"""Samples of a queue, by which a plan cuts the queue into ranges of equal bytes."""
LOOKS_MAX: Final = 2_048
"""Samples of all queues of a plan together: each sample reads some pages of the state."""
ELSEWHERE: Final = "read the folder of another member, or the cluster"


@contextmanager
def told_of(path: Path) -> Generator[None]:
    """Turn what the reading of a data folder raises into FolderError; other refusals pass.

    When a member has begun to use the folder, that is the reason for whatever does not fit.
    """
    try:
        yield
    except (DamagedBatch, DamagedSegment, OSError, AssertionError) as error:
        found = _problem_of(path, error)
        if found.problem is not FolderProblem.UNREADABLE and is_running(path):
            raise _in_use(path) from error
        raise found from error


def _problem_of(path: Path, error: Exception) -> FolderError:
    match error:
        case NewerStore():
            return FolderError(FolderProblem.NEWER, error.strerror or str(error))
        case DamagedStore():
            return FolderError(FolderProblem.DAMAGED, error.strerror or str(error))
        case StoreFailed():
            return FolderError(FolderProblem.UNREADABLE, error.strerror or str(error))
        case OSError():
            where = error.filename or path
            detail = f"{where}: {error.strerror or error}"
            if is_refusal(error):
                return FolderError(FolderProblem.UNREADABLE, detail)
            return FolderError(FolderProblem.DAMAGED, f"{detail}; {ELSEWHERE}")
        case AssertionError():  # a table found rows that do not belong together
            detail = f"state store {state_folder(path)}: {error}; {ELSEWHERE}"
            return FolderError(FolderProblem.DAMAGED, detail)
        case _:
            return FolderError(FolderProblem.DAMAGED, f"{error}; {ELSEWHERE}")


def _in_use(path: Path) -> FolderError:
    return FolderError(
        FolderProblem.IN_USE,
        f"{path}: a member uses this folder; stop the member, copy the folder while it is stopped, "
        "or read the cluster (option endpoints)",
    )


class GroupFolder:
    """One group's data folder, open for reading. Use it in a `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with told_of(path):
            if not path.is_dir():
                raise FolderError(
                    FolderProblem.NOT_FOUND,
                    f"{path} is not a folder on host {socket.gethostname()}; every host that runs "
                    "tasks needs it at this path",
                )
            if is_running(path):
                raise _in_use(path)
            self.identity = _identity(path)
            self.state = self._open_state()
            try:
                self._files = [_segment_file(each) for each in segment_files(path)]
                self._segments = SegmentReader(self._files)
                self._check_files()
            except BaseException:
                self.close()
                raise

    def _open_state(self) -> SavedState:
        folder = state_folder(self.path)
        try:
            return SavedState(str(folder))
        except FileNotFoundError:
            raise FolderError(
                FolderProblem.INCOMPLETE,
                f"{folder}: no saved state is there, and only the state says what is committed; "
                f"{ELSEWHERE}",
            ) from None

    def _check_files(self) -> None:
        """Refuse a log that lacks a part of what the saved state needs."""
        segments, end = self._segments, self.state.applied.end_position
        group_id = self.identity.group_id
        if segments.headers and group_id and segments.group_id not in (group_id, bytes(16)):
            raise FolderError(
                FolderProblem.DAMAGED,
                f"{self._files[0].name}: position {segments.first_position}: the segment belongs "
                f"to group id {segments.group_id.hex()}, the folder to {group_id.hex()}",
            )
        needed = max(self.state.queues.head, self.state.copies.carried.horizon)
        if self.state.queues.head == NO_POSITION:
            return
        at = needed
        for file, header in zip(self._files, segments.headers, strict=False):
            if header.base_position > at:
                break
            at = max(at, header.base_position + max(file.size - SEGMENT_HEADER_SIZE, 0))
        if at < end:
            raise FolderError(
                FolderProblem.INCOMPLETE,
                f"{self.path}: position {at}: no segment holds it, and the saved state needs the "
                f"log from {needed} to {end}; copy all of log/, or {ELSEWHERE}",
            )

    def close(self) -> None:
        """Close the state."""
        self.state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_span(self, span: LogSpan) -> bytes:
        return self._segments.read_span(span.position, span.size)

    def path_of(self, position: Position) -> str:
        return self._segments.locate(position)[0]


def _identity(path: Path) -> Identity:
    file = path / IDENTITY_FILE
    try:
        return parse_identity(file.read_bytes())
    except FileNotFoundError:
        detail = f"{file} is missing; copy it with the rest"
        raise FolderError(FolderProblem.INCOMPLETE, detail) from None
    except NewerFile as error:
        raise FolderError(FolderProblem.NEWER, f"{file}: {error}") from error
    except CorruptFile as error:
        raise FolderError(FolderProblem.DAMAGED, f"{file}: {error}; {ELSEWHERE}") from error


def _segment_file(path: Path) -> SegmentFile:
    """Return a file that is open only while it is read: a log may have very many files."""

    def pread(size: int, offset: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, offset)
        except OSError as error:
            raise OSError(error.errno, f"byte {offset}: {error.strerror}", str(path)) from error
        finally:
            os.close(fd)

    return SegmentFile(str(path), path.stat().st_size, pread)


class FolderPlanner:
    """Plans reads as `Planner` does, from the data folders at a path. Use it in a `with`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._stack = ExitStack()
        self._folders: dict[str, GroupFolder] = {}
        self.cluster = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for path in self._found():
                folder = stack.enter_context(GroupFolder(path))
                self._check_one(folder)
                self._folders[folder.identity.group] = folder
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _found(self) -> list[Path]:
        if not self._path.is_dir():
            raise FolderError(
                FolderProblem.NOT_FOUND,
                f"{self._path} is not a folder on host {socket.gethostname()}",
            )
        found = find_data_folders(self._path)
        if not found:
            raise FolderError(
                FolderProblem.NOT_FOUND,
                f"{self._path} holds no data folder of a member: one has `log`, `state`, "
                "`identity`",
            )
        return found

    def _check_one(self, folder: GroupFolder) -> None:
        """Refuse two clusters, and two members of one group: only one of them could be read."""
        identity = folder.identity
        self.cluster = self.cluster or identity.cluster
        for other in self._folders.values():
            if other.identity.group == identity.group or identity.cluster != self.cluster:
                raise FolderError(
                    FolderProblem.AMBIGUOUS,
                    f"{self._path} holds {_described(other)} and {_described(folder)}; name one",
                )

    @property
    def origin(self) -> FolderOrigin:
        """Where the ranges of plans are read from."""
        return FolderOrigin(
            tuple(
                FolderCopy(group, str(folder.path), folder.state.commit)
                for group, folder in self._folders.items()
            )
        )

    def topics_like(self, pattern: str) -> list[str]:
        return matching(pattern, sorted(self._topics()))

    def freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        *,
        hold: HoldRequest | None = None,
        fail_on_data_loss: bool = True,
        only: Iterable[Place] | None = None,
    ) -> ReadPlan:
        """See `Planner.freeze`; there is no hold, because nothing is trimmed."""
        assert hold is None, "a folder has no holds"
        question = question_of(start, end)
        states = self._states(topics, question, None if only is None else set(only))
        queues, gaps = resolve(states, start, end, fail_on_data_loss=fail_on_data_loss)
        return ReadPlan(self.cluster, tuple(queues), tuple(gaps), {})

    def states(self, topics: Sequence[str], times_ms: Sequence[int] = ()) -> list[QueueState]:
        return self._states(topics, Question(tuple(times_ms)), None)

    def offsets_of_key(
        self, topic_id: bytes, groups: Iterable[str], key: str
    ) -> dict[int, list[int]] | None:
        """See `Planner.offsets_of_key`; None: the index of keys of a folder is not read."""
        del topic_id, groups, key
        return None

    def _topics(self) -> dict[str, Topic]:
        """Return the topics by name, each as the group with its newest decision has it."""
        newest: dict[bytes, Topic] = {}
        for folder in self._folders.values():
            for topic in folder.state.topics.since(-1, with_deleted=True):
                known = newest.setdefault(topic.topic_id, topic)
                if known.control_index < topic.control_index:
                    newest[topic.topic_id] = topic
        found: dict[str, Topic] = {}
        for topic in sorted(newest.values(), key=lambda each: each.control_index):
            if not topic.deleted:
                found[topic.name] = topic
        return found

    def _states(
        self, names: Sequence[str], question: Question, only: set[Place] | None
    ) -> list[QueueState]:
        known = self._topics()
        for name in names:
            if name not in known:
                raise error_of(Code.TOPIC_NOT_FOUND, f"topic {unknown(name, known)}")
        wanted = [
            (known[name], queue)
            for name in sorted(set(names))
            for queue in range(queues_of(known[name].layout))
            if only is None or (name, queue) in only
        ]
        missing = (only or set()) - {(topic.name, queue) for topic, queue in wanted}
        if missing:
            name, queue = min(missing)
            raise error_of(Code.QUEUE_NOT_FOUND, f"topic {name} has no queue {queue}")
        samples = max(min(SAMPLES, LOOKS_MAX // max(len(wanted), 1)), 1)
        return [self._state(topic, queue, question, samples) for topic, queue in wanted]

    def _state(self, topic: Topic, number: int, question: Question, samples: int) -> QueueState:
        owner = topic.owner_of(number)
        folder = self._folders.get(owner)
        if not topic.permission & PERMISSION_READ:
            raise error_of(Code.NO_PERMISSION, f"{topic.name}/{number}: may not be read")
        if folder is None:
            raise FolderError(
                FolderProblem.INCOMPLETE,
                f"{topic.name}/{number} belongs to group {owner}, {self._path} holds "
                f"{', '.join(sorted(self._folders))}; name a folder that holds one of each group, "
                "or choose queues by `assign`",
            )
        with told_of(folder.path):
            queues = folder.state.queues
            queue = queues.find((topic.topic_id, number))
            found: list[Sample] = []
            for offset in sample_offsets(queue.minimum, queue.maximum, samples):
                span = queues.row_at(queue, offset)
                if not found or found[-1].offset < span.base_offset:
                    found.append(Sample(span.base_offset, span.record_count, span.size))
            times_ms = question.times_of((topic.name, number))
            by_time = {time_ms: queues.offset_by_time(queue, time_ms) for time_ms in times_ms}
            stored = None
            if question.group:
                state, queue_id = folder.state, (topic.topic_id, number)
                stored = state.progress.of_name(state.topics, question.group, queue_id)
        return QueueState(
            topic.name, topic.topic_id, number, owner, queue.minimum, queue.maximum, tuple(found),
            by_time, None if stored is None else stored.floor,
        )  # fmt: skip


def _described(folder: GroupFolder) -> str:
    identity = folder.identity
    return (
        f"{folder.path} of member {identity.member} of group {identity.group} in cluster "
        f"{identity.cluster}"
    )


class FolderRangeReader:
    """Reads ranges as `RangeReader` does, from data folders. Use it in a `with`."""

    def __init__(self, origin: FolderOrigin, columns: Sequence[str]) -> None:
        self._copies = {copy.group: copy for copy in origin.copies}
        self._columns = tuple(columns)
        self._stack = ExitStack()
        self._open: dict[str, GroupFolder] = {}
        self._fail_on_unreadable = origin.fail_on_unreadable
        self.gaps: list[Unreadable] = []
        """What could not be decoded; empty unless the reader accepts such gaps."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _folder(self, group: str) -> GroupFolder:
        folder = self._open.get(group)
        if folder is None:
            copy = self._copies[group]
            folder = self._stack.enter_context(GroupFolder(Path(copy.path)))
            if folder.state.commit != copy.commit:
                raise FolderError(
                    FolderProblem.CHANGED,
                    f"{copy.path}: commit {folder.state.commit} of the state, the plan was made "
                    f"at commit {copy.commit}: a member has used the folder since, or host "
                    f"{socket.gethostname()} has another copy; call load() again, because Spark "
                    "keeps the plan of a DataFrame and of a view",
                )
            self._open[group] = folder
        return folder

    def read(self, wanted: Range, hold: Hold | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the whole range in order. FolderError naming file and position otherwise."""
        assert hold is None, "a folder has no holds"
        folder = self._folder(wanted.group)
        source = ExpectedQueue(wanted.topic, wanted.topic_id, wanted.queue, wanted.group)
        tell = None if self._fail_on_unreadable else self._pass_over
        decoder = Decoder(source, self._columns, wanted.start, wanted.end, tell)
        queue = folder.state.queues.find((wanted.topic_id, wanted.queue))
        while not decoder.is_done:
            with told_of(folder.path):
                spans = folder.state.queues.spans(queue, decoder.next_offset, READ_BYTES)
                batches = read_batches(folder, spans)
            try:
                yield from decoder.decode(
                    [
                        Span(
                            span.base_offset, span.first_record, span.record_count,
                            span.store_time_ms, batch, span.position,
                        )
                        for span, batch in zip(spans, batches, strict=True)
                    ]
                )  # fmt: skip
            except DledgerError as error:
                if error.code is Code.UNREADABLE_BATCH:
                    raise error_of(error.code, f"{error.detail}; {SPARK_REMEDY}") from error
                raise _misfit(folder, spans, decoder.next_offset, error) from error

    def _pass_over(self, what: Unreadable) -> None:
        self.gaps.append(what)
        _LOG.warning("%s", what.describe())


def _misfit(
    folder: GroupFolder, spans: Sequence[QueueSpan], offset: int, error: DledgerError
) -> FolderError:
    """Return the error for a sound batch that is not the batch which the state names."""
    at = next(
        each.place
        for each in spans
        if each.base_offset + each.record_count > offset and not each.is_gone
    )
    return FolderError(
        FolderProblem.DAMAGED,
        f"{folder.path_of(Position(at))}: position {at}: {error.detail}; {ELSEWHERE}",
    )
