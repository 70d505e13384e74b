"""Known bugs of the state and of producers: lives, trims, key and message id indexes, waking."""

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
                "dledger.state.producers.table:ProducerTable.check",
                "if epoch != producer.epoch:",
                "if epoch > producer.epoch:",
            )
        ],
    ),
    Mutant(
        "lives-are-one",
        "another life of a producer is given the epoch of the one before it (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "if self.life_id == producer.life_id:",
                "if True:",
            ),
            Edit(
                "dledger.state.producers.registration:RegisterProducer.apply",
                "if producer.life_id != self.life_id:",
                "if False:",
            ),
        ],
        ["test_zombies.test_a_first_registration_that_comes_late_fences_nobody"],
    ),
    Mutant(
        "registration-fences-its-own",
        "a repeat of a registration gives its life another epoch, and fences it (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer.apply",
                "elif self.epoch > producer.epoch:\n                producer.epoch = self.epoch",
                "elif True:\n                producer.epoch += 1",
            )
        ],
        ["test_zombies.test_a_producer_alone_is_not_fenced_by_copies_of_its_own_registrations"],
    ),
    Mutant(
        "fenced-life-comes-back",
        "a life that was fenced may take over from the one that fenced it (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "elif self.life_id == producer.former_life_id:",
                "elif False:",
            )
        ],
        ["test_zombies.test_a_fenced_life_that_asks_again_is_told"],
    ),
    Mutant(
        "late-registration-takes-over",
        "a first registration takes over at once, however late it comes (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "return Taken(held)",
                "return None",
            ),
            Edit(
                "dledger.state.producers.registration:RegisterProducer.apply",
                "= self.life_id, producer.life_id\n                producer.epoch = self.epoch",
                "= self.life_id, producer.life_id\n                producer.epoch += 1",
            ),
        ],
        ["test_zombies.test_a_first_registration_that_comes_late_fences_nobody"],
    ),
    Mutant(
        "takeover-from-whomever",
        "a life takes over from another than the one it was told of (D11)",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "elif wanted != held + 1:",
                "elif wanted < held:",
            )
        ],
        ["test_zombies.test_a_takeover_that_comes_late_fences_nobody"],
    ),
    Mutant(
        "forgotten-id-begins-anew",
        "a producer id that was forgotten has its first epoch again (D11)",
        [
            Edit(
                "dledger.state.producers.registration:_first_epoch",
                "return min(max(time_ms // 1_000, 1), FIRST_EPOCH_MAX)",
                "return 1",
            )
        ],
        ["test_zombies.test_a_zombie_of_a_forgotten_name_cannot_pass_for_the_one_that_began_anew"],
    ),
    Mutant(
        "late-answer-counts",
        "a producer takes an answer to an earlier registration for that of its newest (D11)",
        [
            Edit(
                "dledger_client._core.producer.epoch:Epoch.is_awaited",
                "return self.state is EpochState.ASKED and ask == self.asks",
                "return self.state is EpochState.ASKED",
            )
        ],
        ["test_producer_findings.test_an_answer_to_an_earlier_registration_is_ignored"],
    ),
    Mutant(
        "moved-queue-begins-anew",
        "a producer begins at sequence 0 when a queue comes back to a group (D11)",
        [
            Edit(
                "dledger_client._core.producer.buffer:SendBuffer.lane",
                "if lane is None:",
                "self._lanes = {k: v for k, v in self._lanes.items() if v.group == group}\n"
                "        if lane is None:",
            )
        ],
        [
            "test_producer_findings.test_a_queue_that_comes_back_to_a_group_goes_on_with_its_sequence"
        ],
    ),
    Mutant(
        "repeat-without-its-offset",
        "a repeat is recognised, and answered as if its offset were forgotten (D11)",
        [
            Edit(
                "dledger.state.producers.table:ProducerTable._repeat",
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
                "dledger.state.producers.table:ProducerTable._newest_rows",
                "left = WINDOW_BATCHES",
                "left = WINDOW_BATCHES - 1",
            )
        ],
    ),
    Mutant(
        "trim-passes-holds",
        "a trim does not ask whether somebody holds the queue",
        [Edit("dledger.state.queues.trim:Trim._allowed", "if alive:", "if False:")],
    ),
    Mutant(
        "hold-never-ends",
        "a hold outlives its time",
        [Edit("dledger.state.queues.holds:HoldTable.alive", "if until_ms > time_ms:", "if True:")],
    ),
    Mutant(
        "garbage-skips-the-next-range",
        "where deleting stopped in one range is where it begins in the next",
        [
            Edit(
                "dledger.state.queues.garbage:Garbage.collect",
                'self._first += 1\n            self._resume_at = b""',
                "self._first += 1",
            )
        ],
    ),
    Mutant(
        "merge-loses-entries",
        "a merge of the key index deletes a block of which it has taken a part",
        [
            Edit(
                "dledger.state.lookup.key_index:KeyIndex._move_once",
                "if stop == len(data):",
                "if True:",
            )
        ],
    ),
    Mutant(
        "merge-cursor-ignored",
        "a lookup sees what a merge under way has taken over twice",
        [
            Edit(
                "dledger.state.lookup.key_index:KeyIndex.find",
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
                "dledger.state.lookup.key_index:KeyIndex._load",
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
                "dledger.state.lookup.key_index:KeyIndex._without_trimmed",
                "place.position >= firsts",
                "place.position > firsts",
            )
        ],
    ),
    Mutant(
        "answer-goes-on-behind-its-batch",
        "the next answer to a lookup by key leaves out the rest of the batch where the last ended",
        [
            Edit(
                "dledger.state.lookup.key_index:KeyIndex.find",
                "place.position <= up_to",
                "place.position < up_to",
            ),
            Edit(
                "dledger.state.lookup.key_index:KeyIndex.find",
                "U64.pack(up_to + 1)",
                "U64.pack(up_to)",
            ),
        ],
    ),
    Mutant(
        "record-cut-from-unchecked-batch",
        "a record is cut out of a batch whose checksum nobody has compared (I15)",
        [
            Edit(
                "dledger_broker.read.lookups:_checked",
                "read_batches(log, [place.span])[0]",
                "log.read_span(place.span)",
            )
        ],
        ["unit.broker.test_lookups.test_no_record_of_a_damaged_batch_is_answered"],
    ),
    Mutant(
        "id-in-its-own-bucket-only",
        "a record is not found whose batch begins in the bucket before",
        [
            Edit(
                "dledger.state.lookup.message_ids:MessageIdIndex.find",
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
                "dledger.state.queues.table:QueueTable.offset_by_time",
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
                "dledger.state.machine:StateMachine.apply",
                "grown = changed if",
                "grown = changed[:1] if",
            )
        ],
    ),
    Mutant(
        "row-seal-not-checked",
        "a saved row is believed without looking at its seal (I15)",
        [
            Edit(
                "dledger.store.sealed:is_sound",
                "crc32c(sealed, crc32c(key, len(key))) == RESIDUE",
                "True",
            )
        ],
        ["test_state_seals.test_a_row_that_changed_is_refused_when_it_is_read"],
    ),
    Mutant(
        "order-of-rows-not-checked",
        "a scan gives rows in the order in which the file has them",
        [
            Edit(
                "dledger.store.lmdb_store:LmdbBase.scan", "!= RESIDUE or key < last:", "!= RESIDUE:"
            )
        ],
        ["test_state_seals.test_rows_out_of_order_are_damage_also_when_each_is_sound:false"],
    ),
    Mutant(
        "order-of-rows-not-checked-backwards",
        "the same, backwards",
        [
            Edit(
                "dledger.store.lmdb_store:LmdbBase.scan", "!= RESIDUE or key > last:", "!= RESIDUE:"
            )
        ],
        ["test_state_seals.test_rows_out_of_order_are_damage_also_when_each_is_sound:true"],
    ),
    Mutant(
        "closed-queues-move",
        "a queue that is closed is given to another group when it is opened again (D14)",
        [Edit("dledger.state.topics.commands:UpdateTopic.apply", "grown(layout,", "grown((),")],
        [
            "unit.state.test_topics.test_a_closed_queue_stays_with_its_group_and_goes_on_where_it_was"
        ],
    ),
    Mutant(
        "closed-queues-unread",
        "a queue that takes no messages any more is not read any more, although nobody asked so",
        [
            Edit(
                "dledger.state.topics.commands:UpdateTopic.apply",
                "max(read_queues, topic.write_queues, write_queues)",
                "write_queues",
            )
        ],
        ["unit.state.test_topics.test_a_closed_queue_is_read_until_fewer_are_asked_for"],
    ),
    Mutant(
        "cut-off-creation-is-damage",
        "a store whose first commit was cut off is refused for ever",
        [Edit("dledger.store.lmdb_rows:is_blank", "<= BLANK_PAGES_MAX * size", "< 0")],
        ["test_state_seals.test_a_first_commit_that_was_cut_off_is_a_new_store"],
    ),
    Mutant(
        "cut-short-creation-is-damage",
        "a store whose very first write was cut short is refused for ever",
        [
            Edit(
                "dledger.store.lmdb_rows:is_blank",
                "len(content) < META_COUNT * least",
                "not content",
            )
        ],
        ["test_state_seals.test_a_first_write_that_was_cut_short_is_a_new_store:100"],
    ),
    Mutant(
        "life-leaps-to-the-last-epoch",
        "a life may take the last epoch at once, and nobody can take over from it",
        [
            Edit(
                "dledger.state.producers.registration:RegisterProducer._verdict",
                "if wanted > max(held + 1, now):",
                "if wanted > EPOCH_MAX:",
            )
        ],
        ["unit.state.test_producers.test_no_life_leaps_to_where_nobody_can_follow"],
    ),
    Mutant(
        "free-pages-are-missed",
        "a state's file that LMDB left shorter than its last page is called damaged",
        [
            Edit(
                "dledger.store.lmdb_rows:PageFile._check_size",
                "count > room or not self._free(newest).issuperset(range(present, "
                "newest.last_page + 1))",
                "True",
            )
        ],
        ["test_state_seals.test_a_file_that_ends_before_free_pages_is_sound"],
    ),
    Mutant(
        "short-file-is-sound",
        "a state's file that lost pages in use is mapped",
        [
            Edit(
                "dledger.store.lmdb_rows:PageFile._check_size",
                "if count <= 0:",
                "if True:",
            )
        ],
        ["test_state_seals.test_a_file_that_lost_pages_in_use_is_damage"],
    ),
    Mutant(
        "totals-not-kept",
        "a save that replaces rows leaves the totals as they were for these",
        [
            Edit(
                "dledger.store.lmdb_store:LmdbBase._write",
                "total -= old\n                total",
                "total",
            )
        ],
        ["test_state_seals.test_a_store_passes_its_own_check_after_any_writes"],
    ),
    Mutant(
        "totals-not-compared",
        "rows that are sound by themselves, and missing or older, pass",
        [Edit("dledger.store.lmdb_check:_check_rows", "if found != totals:", "if False:")],
        ["test_state_seals.test_a_row_that_is_sound_and_not_the_newest_is_noticed"],
    ),
    Mutant(
        "mark-not-compared",
        "an older copy of the state's file is taken for the newest",
        [Edit("dledger.store.lmdb_mark:check_mark", "if mark is None:", "if True:")],
        ["test_state_seals.test_an_older_file_is_noticed"],
    ),
)
