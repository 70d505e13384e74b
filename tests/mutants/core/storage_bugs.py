"""Known bugs of the log, its recovery, the state and its saving."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import LIVENESS, SAFETY, Mutant
from tests.mutants.rewrite import Edit

STORAGE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "failed-sync-ignored",
        "a write round goes on after EIO as if nothing had happened (I16)",
        [
            Edit(
                "dledger.log.writing.write_round:Round.execute",
                "self.disk.fail(error)\n            raise",
                "assert error",
            )
        ],
    ),
    Mutant(
        "segment-name-not-synced",
        "the folder is not synced after a new segment was made",
        [
            Edit(
                "dledger.log.writing.write_round:LogDisk.create",
                "self._fs.sync_folder(self._log_path)",
                "pass",
            )
        ],
    ),
    Mutant(
        "seal-not-synced",
        "a full segment, and a cut suffix, are not synced",
        [Edit("dledger.log.writing.write_round:LogDisk.cut_to", "file.fdatasync()", "pass")],
    ),
    Mutant(
        "entries-not-synced",
        "a write round ends without fdatasync",
        [
            Edit(
                "dledger.log.writing.write_round:LogDisk.sync",
                "self._open(name).fdatasync()",
                "pass",
            )
        ],
    ),
    Mutant(
        "checkpoint-not-lowered",
        "a suffix is cut while the checkpoint still claims it",
        [
            Edit(
                "dledger.log.writing.rounds:WriteRounds._plan_cut",
                "if state.checkpoint_position > cut.position:",
                "if False:",
            )
        ],
        [f"{SAFETY}.test_a_cut_below_the_checkpoint_survives_a_power_cut"],
    ),
    Mutant(
        "append-forgets-the-frozen-rows",
        "a row that a flush under way holds is not found when it is extended",
        [
            Edit(
                "dledger.store.store:StateStore.append",
                'bytearray(self.get(key) or b"")',
                'bytearray(self._base.get(key) or b"")',
            )
        ],
    ),
    Mutant(
        "dedup-off",
        "a repeated batch is stored again",
        [
            Edit(
                "dledger.state.producers.table:ProducerTable.check",
                "return self._repeat(queue, header.base_sequence, header.record_count)",
                "return queue",
            )
        ],
    ),
    Mutant(
        "dedup-lost-at-restart",
        "a producer's sequences are not read back from the state",
        [
            Edit(
                "dledger.state.producers.table:ProducerTable._queue",
                "ProducerQueue(queue_id, self._store.get(_queue_key(queue_id)))",
                "ProducerQueue(queue_id, None)",
            )
        ],
    ),
    Mutant(
        "offsets-reused-after-restart",
        "a queue's end is not read back: offsets begin anew",
        [
            Edit(
                "dledger.state.queues.table:QueueTable.find",
                "Queue(queue_id, self._store.get(_state_key(queue_id)))",
                "Queue(queue_id, None)",
            )
        ],
    ),
    Mutant(
        "offset-commit-lost",
        "a consumer group's offset is acknowledged, not stored",
        [
            Edit(
                "dledger.state.offsets:OffsetTable.commit",
                "self._writer.put(",
                "(lambda *_: None)(",
            )
        ],
    ),
    Mutant(
        "offset-goes-back",
        "a lower offset replaces a higher one without a reset (I14)",
        [
            Edit(
                "dledger.state.offsets:OffsetTable.commit",
                "if item.offset < now and not reset:",
                "if False:",
            )
        ],
    ),
    Mutant(
        "trim-above-the-slowest",
        "the head is trimmed above what the slowest member holds",
        [
            Edit(
                "dledger.raft.commit.applying:Applying.trim",
                "limit = min(context.machine.saved_index, floor)",
                "limit = context.machine.saved_index",
            )
        ],
        [f"{LIVENESS}.test_the_head_is_kept_for_a_late_member"],
    ),
    Mutant(
        "trim-above-the-saved-state",
        "the head is trimmed above what the synced state covers (D16)",
        [
            Edit(
                "dledger.raft.commit.applying:Applying.trim",
                "limit = min(context.machine.saved_index, floor)",
                "limit = min(context.machine.applied_index, floor)",
            ),
            Edit(
                "dledger.state.machine:StateMachine.head_needed",
                "return self._saved_head",
                "return self._end",
            ),
        ],
    ),
)
