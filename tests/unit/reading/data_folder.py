"""A stopped member's data folder, made by the product's own log and state, without a cluster.

The log is written and applied entry by entry, the state saved where a test says so: what is
appended behind that is what a member has on disk and does not know to be committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dledger.files import OsFileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.machine import StateMachine
from dledger.state.queues.table import KIND_GONE, ROW
from dledger.state.topics.commands import CreateTopic
from dledger.state.values import LayoutPart, TopicType
from dledger.store.lmdb_store import LmdbStore
from dledger.types import EntryKind, LogIndex, MemberId, Term
from dledger_proto.batch.codec import Compression, Record, encode_batch
from dledger_proto.entry import encode_genesis
from tests.unit.log.support import SMALL

MAP_SIZE = 1 << 26
FIRST_MS = 1_700_000_000_000
STEP_MS = 10
"""Between the stamps of two batches."""
Place = tuple[bytes, int]


def topic_id(name: str) -> bytes:
    """Return the id of a topic of a name."""
    return name.encode().ljust(16, b".")


@dataclass
class WrittenFolder:
    """One group's folder while it is written."""

    path: Path
    group: str = "g1"
    member: str = "m1"
    cluster: str = "c1"
    sent: dict[Place, list[bytes]] = field(default_factory=dict[Place, list[bytes]])
    """Bodies by queue, of records that were applied."""

    def __post_init__(self) -> None:
        fs, random = OsFileSystem(), Random(1)
        self.folder = DataFolder.open(
            fs, str(self.path), self.cluster, self.group, MemberId(self.member), random
        )
        self.log = CommitLog(fs, self.folder, SMALL, random)
        self.store = LmdbStore(str(self.path / "state"), MAP_SIZE)
        self.machine = StateMachine(self.store, self.group)
        group_id = self.group.encode().ljust(16, b"-")
        members = [(self.member, b"1" * 16)]
        genesis = encode_genesis(self.cluster, self.group, group_id, members)
        self.log.write_genesis(genesis, group_id)

    def command(self, *commands: Command[object]) -> None:
        """Append commands, an entry each."""
        for each in commands:
            self._append(EntryKind.COMMANDS, encode(each))

    def topic(self, name: str, *parts: tuple[str, int]) -> bytes:
        """Create a topic; return its id."""
        layout = tuple(LayoutPart(*part) for part in parts or ((self.group, 2),))
        queues = sum(part.queues for part in layout)
        self.command(CreateTopic(topic_id(name), name, TopicType.NORMAL, layout, queues, 6))
        return topic_id(name)

    def batch(
        self,
        topic: bytes,
        queue: int,
        bodies: Sequence[bytes],
        compression: Compression = Compression.NONE,
    ) -> None:
        """Append a batch of records with a tag, a key and a property each."""
        records = [
            Record(body, "blue", (f"k{number}",), {"city": "Zürich"}, FIRST_MS + number)
            for number, body in enumerate(bodies)
        ]
        encoded = encode_batch(
            records, topic_id=topic, queue=queue, stamp=None, base_number=0,
            base_time_ms=FIRST_MS, compression=compression,
        )  # fmt: skip
        self.framed(encoded)
        self.sent.setdefault((topic, queue), []).extend(bodies)

    def framed(self, batch: bytes) -> None:
        """Append a batch as it is, unchecked."""
        self._append(EntryKind.BATCHES, batch)

    def _append(self, kind: EntryKind, payload: bytes) -> None:
        time_ms = max(self.log.last_time_ms + STEP_MS, FIRST_MS)
        self.log.append_new(kind, (payload,), Term(1), time_ms)

    def sync(self) -> None:
        """Write and sync what was appended."""
        taken = self.log.take_round(HardState(Term(1), self.member, {}))
        if taken is not None:
            taken.execute()
            self.log.round_finished(taken)

    def save(self) -> None:
        """Apply all that was appended, and save the state: it counts as committed."""
        self.sync()
        while self.machine.applied_index < self.log.last_index:
            following = LogIndex(self.machine.applied_index + 1)
            for entry in self.log.entries(following, self.log.last_index, 1 << 30):
                self.machine.apply(entry)
        flush = self.machine.freeze()
        assert flush is not None, "there is something to save"
        flush.execute()
        self.machine.flush_finished(flush)

    def compact(self, topic: bytes, queue: int, first_row: int, rows: int) -> tuple[int, int]:
        """Put one row without a batch in the place of some of the newest block, but the last.

        Returns the offsets that are gone: the first, and one above the last. Save after another
        command.
        """
        found = self.machine._state.queues.find((topic, queue))
        block = self.store.get(found.block_key)
        assert block is not None, "the queue has rows"
        start, stop = first_row * ROW.size, (first_row + rows) * ROW.size
        replaced = list(ROW.iter_unpack(block[start:stop]))
        _, _, _, _, base, position, time_ms = replaced[0]
        count = sum(each[2] for each in replaced)
        row = ROW.pack(KIND_GONE, 0, count, 0, base, position, time_ms)
        self.store.put(found.block_key, block[:start] + row + block[stop:])
        found.block_rows -= rows - 1
        return base, base + count

    def close(self) -> None:
        """Stop the member; what was not synced is not written."""
        self.store.close()
        self.log.close()
        self.folder.close()
