"""Known bugs of the state: producers, trims, the key and message id indexes, who is woken."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

STATE: Final = "dledger.state"

STATE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "stale-epoch-writes",
        "a producer whose epoch was fenced goes on writing (D11)",
        [
            Edit(
                f"{STATE}.producers:ProducerTable.check",
                "if epoch != producer.epoch:",
                "if epoch > producer.epoch:",
            )
        ],
    ),
    Mutant(
        "taking-over-leaves-no-epoch-out",
        "a fenced producer that begins a new epoch gets its successor's, or fences it (D11)",
        [
            Edit(
                f"{STATE}.producers:ProducerTable.register",
                "epoch = last_epoch + 2 if last_epoch else 1",
                "epoch = last_epoch + 1",
            )
        ],
        ["test_zombies.test_a_zombie_that_begins_a_new_epoch_takes_none_from_its_successor"],
    ),
    Mutant(
        "repeat-without-its-offset",
        "a repeat is recognised, and answered as if its offset were forgotten (D11)",
        [
            Edit(
                f"{STATE}.producers:ProducerTable._repeat",
                "return Appended(base_offset,",
                "return Appended(-1,",
            )
        ],
    ),
    Mutant(
        "window-one-too-short",
        "the oldest of the batches whose offsets are promised to be known is not",
        [
            Edit(
                f"{STATE}.producers:ProducerTable._newest_rows",
                "left = WINDOW_BATCHES",
                "left = WINDOW_BATCHES - 1",
            )
        ],
    ),
    Mutant(
        "trim-passes-holds",
        "a trim does not ask whether somebody holds the queue",
        [Edit(f"{STATE}.trim:HoldTable.limit", "if alive:", "if False:")],
    ),
    Mutant(
        "hold-never-ends",
        "a hold outlives its time",
        [Edit(f"{STATE}.trim:HoldTable._alive", "if until_ms > time_ms:", "if True:")],
    ),
    Mutant(
        "garbage-skips-the-next-range",
        "where deleting stopped in one range is where it begins in the next",
        [
            Edit(
                f"{STATE}.trim:Garbage.collect",
                'self._first += 1\n            self._resume_at = b""',
                "self._first += 1",
            )
        ],
    ),
    Mutant(
        "merge-loses-entries",
        "a merge of the key index deletes a block of which it has taken a part",
        [Edit(f"{STATE}.key_index:KeyIndex._move_once", "if stop == len(data):", "if True:")],
    ),
    Mutant(
        "merge-cursor-ignored",
        "a lookup sees what a merge under way has taken over twice",
        [
            Edit(
                f"{STATE}.key_index:KeyIndex.find",
                'max(low, cursors.get(run.number, b""))',
                "low",
            )
        ],
    ),
    Mutant(
        "level-0-not-read-back",
        "after a restart the newest block of the key index begins anew",
        [
            Edit(
                f"{STATE}.key_index:KeyIndex._load",
                "topic.block, topic.block_size = block, len(data)",
                "pass",
            )
        ],
    ),
    Mutant(
        "partly-trimmed-batch-not-found",
        "a merge leaves out a batch of which a part is still there",
        [
            Edit(
                f"{STATE}.key_index:KeyIndex._without_trimmed",
                "place.position >= firsts",
                "place.position > firsts",
            )
        ],
    ),
    Mutant(
        "id-in-its-own-bucket-only",
        "a record is not found whose batch begins in the bucket before",
        [
            Edit(
                f"{STATE}.message_ids:MessageIdIndex.find",
                "max(number - records_max + 1, 0)",
                "number",
            )
        ],
    ),
    Mutant(
        "by-time-after-not-at",
        "an offset by time is the first after it, not at it",
        [
            Edit(
                f"{STATE}.queues:QueueTable.offset_by_time",
                "times, time_ms - 1,",
                "times, time_ms,",
            )
        ],
    ),
    Mutant(
        "long-poll-sleeps-on",
        "of the queues that an entry appends to, only one wakes its readers (S53)",
        [
            Edit(
                f"{STATE}.machine:StateMachine.apply",
                "for queue in changed:",
                "for queue in changed[:1]:",
            )
        ],
    ),
)
