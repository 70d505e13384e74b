"""Known bugs of exports: each breaks one promise of the protocol."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

EXPORT: Final = "dledger_client.export"
SCRIPTS: Final = "test_exports"
HOLDS: Final = "test_export_holds"
FOLDERS: Final = "test_export_folders"
COMPACTED: Final = "test_compacted"
RACE: Final = f"{SCRIPTS}.test_two_exporters_at_once_publish_each_version_once"
ADOPTED: Final = f"{SCRIPTS}.test_an_open_plan_is_finished_and_not_replaced"

EXPORT_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "export-overwrites-what-is-published",
        "plans and manifests are published over what is there",
        [
            Edit(
                "dledger_client.export.files.storage:ExportStorage.put_if_absent",
                "self.install(staged, name)",
                "self.install(staged, name, over=True)",
            )
        ],
        [RACE],
    ),
    Mutant(
        "export-names-unsynced-bytes",
        "a file gets its name, and a manifest names it, before its bytes are on disk",
        [
            Edit(
                "dledger_client.export.files.storage:ExportStorage.install",
                "self._disk.sync_file(staged.path)",
                "pass",
            ),
            Edit(
                "dledger_client.export.files.storage:ExportStorage.settle",
                "self._disk.sync_file(self.path(name))",
                "pass",
            ),
        ],
        [f"{SCRIPTS}.test_what_is_published_survives_a_power_cut_right_behind_it"],
    ),
    Mutant(
        "export-forgets-folders",
        "names are not synced before somebody builds on them",
        [
            Edit(
                "dledger_client.export.files.storage:ExportStorage.install",
                "self.settle(name)",
                "pass",
            )
        ],
        [f"{SCRIPTS}.test_what_is_published_survives_a_power_cut_right_behind_it"],
    ),
    Mutant(
        "export-builds-on-a-rivals-unsynced-name",
        "a file that is reused is taken for durable because it is there",
        [Edit("dledger_client.export.task:_found", "work.storage.settle(name)", "pass")],
        [f"{SCRIPTS}.test_a_manifest_built_on_a_rivals_files_survives_a_power_cut"],
    ),
    Mutant(
        "export-plans-anew",
        "an open plan is not adopted: a new one is made in its place",
        [
            Edit(
                "dledger_client.export.run:export_once",
                "plan = history.open_plan(storage, number)\n    frozen",
                "plan = None\n    frozen",
            ),
            Edit(
                "dledger_client.export.run:export_once",
                "plan = history.open_plan(storage, number)\n            assert",
                "assert",
            ),
        ],
        [ADOPTED],
    ),
    Mutant(
        "export-second-keeps-its-plan",
        "who comes second with a plan goes on with its own",
        [
            Edit(
                "dledger_client.export.run:export_once",
                "plan = history.open_plan(storage, number)\n            assert",
                "assert",
            )
        ],
        [RACE],
    ),
    Mutant(
        "export-trusts-names",
        "a file is taken for whole because its footer can be read",
        [
            Edit(
                "dledger_client.export.files.parquet:check",
                "for batch in read_batches(path, columns):",
                "for batch in ():",
            ),
            Edit(
                "dledger_client.export.files.parquet:check",
                "crc = summary.digest()",
                "crc = footer.crc",
            ),
        ],
        [f"{SCRIPTS}.test_a_file_that_is_not_whole_is_made_again"],
    ),
    Mutant(
        "export-takes-anybodys-file",
        "a file of another topic's life is reused",
        [
            Edit(
                "dledger_client.export.files.parquet:check",
                "if found != wanted or footer.columns",
                "if footer.columns",
            )
        ],
        [f"{SCRIPTS}.test_another_ones_file_is_refused_and_left_alone"],
    ),
    Mutant(
        "export-passes-over-a-trim",
        "what was trimmed before it was exported is left out in silence",
        [
            Edit(
                "dledger_client.export.planning:_lost",
                "if gaps and not options.accept_data_loss:",
                "if False:",
            )
        ],
        [f"{SCRIPTS}.test_trimmed_records_are_never_passed_over_in_silence"],
    ),
    Mutant(
        "export-adds-without-removing",
        "a compaction leaves what it replaced in the version",
        [
            Edit(
                "dledger_client.export.run:_finish",
                "tuple(each.path for merge in plan.merges for each in merge.inputs)",
                "()",
            )
        ],
        [f"{SCRIPTS}.test_a_compaction_that_dies_at_any_call_changes_no_row"],
    ),
    Mutant(
        "export-takes-a-new-queue-from-what-is-left",
        "what was trimmed of a queue that came later is passed over in silence",
        [
            Edit(
                "dledger_client.export.source:FreezeRequest.begin",
                "return minimum if self.is_first else 0",
                "return minimum",
            )
        ],
        [f"{SCRIPTS}.test_a_queue_that_came_later_is_wanted_from_its_first_record"],
    ),
    Mutant(
        "export-publishes-what-is-not-tiled",
        "a version lacks a range that its engine lost",
        [Edit("dledger_client.export.run:_finish", "check_tiles(plan, entries, gaps)", "pass")],
        [f"{SCRIPTS}.test_a_version_that_lacks_a_range_is_not_published"],
    ),
    Mutant(
        "export-adds-another-clusters-log",
        "the same offsets of another cluster are added to a folder",
        [
            Edit(
                "dledger_client.export.manifests.history:check_owner",
                "if mine.cluster != identity.cluster:",
                "if False:",
            )
        ],
        [f"{SCRIPTS}.test_another_log_is_never_added_to_an_export"],
    ),
    Mutant(
        "export-adds-another-life-of-the-topic",
        "a topic that was made anew goes on where the deleted one ended",
        [
            Edit(
                "dledger_client.export.manifests.history:check_owner",
                "if (mine.topic, mine.topic_id) != (identity.topic, identity.topic_id):",
                "if mine.topic != identity.topic:",
            )
        ],
        [f"{SCRIPTS}.test_another_log_is_never_added_to_an_export"],
    ),
    Mutant(
        "export-looks-at-bounds-of-rows-only",
        "a record twice and another not at all pass for a whole range",
        [
            Edit(
                "dledger_client.export.files.parquet:Summary.add",
                "(np.diff(offsets) > 0)",
                "(np.diff(offsets) >= 0)",
            )
        ],
        [f"{SCRIPTS}.test_rows_out_of_order_are_in_no_file"],
    ),
    Mutant(
        "export-lets-go-of-an-open-plan",
        "a run that failed releases its hold, and a trim takes what its plan names",
        [
            Edit(
                "dledger_client.export.cluster_source:ClusterSource.__exit__",
                " and (kind is None or not self._is_plan_open())",
                "",
            )
        ],
        [f"{HOLDS}.test_a_failed_run_keeps_its_hold"],
    ),
    Mutant(
        "export-holds-by-one-name",
        "two exporters of one folder have one hold, and who is done ends it",
        [Edit("dledger_client.export.holder:Holder._locked", "fcntl.LOCK_EX", "fcntl.LOCK_SH")],
        [f"{HOLDS}.test_two_at_once_end_their_own_hold"],
    ),
    Mutant(
        "export-holds-by-a-name-for-each-start",
        "an exporter that is restarted in a loop uses up the holds of its queues",
        [
            Edit(
                "dledger_client.export.holder:Holder.__init__",
                'self._taken(storage) if storage else ""',
                '""',
            )
        ],
        [f"{HOLDS}.test_who_is_restarted_in_a_loop_has_one_hold"],
    ),
    Mutant(
        "export-looks-by-an-exporters-name",
        "a verification ends the hold of an exporter that died, whose plan is open",
        [
            Edit(
                "dledger_client.export.cluster_source:ClusterSource.__enter__",
                "self._storage if self._is_exporter else None",
                "self._storage",
            )
        ],
        [f"{HOLDS}.test_who_only_looks_lets_go_of_nobodys_hold"],
    ),
    Mutant(
        "export-holds-no-queue-that-waits",
        "only the queue that is read is held on: the others end when their time is over",
        [
            Edit(
                "dledger_client.reading.keeper:Keeper._is_renewed",
                "self._renew(self._plan)",
                "pass",
            )
        ],
        [f"{HOLDS}.test_queues_are_held_until_their_turn_has_come"],
    ),
    Mutant(
        "export-collects-what-a-plan-will-name",
        "old files of an open plan are deleted while somebody builds on them",
        [
            Edit(
                "dledger_client.export.upkeep:collect",
                "temporary if is_open else (*temporary, *written)",
                "(*temporary, *written)",
            )
        ],
        [f"{SCRIPTS}.test_a_collection_takes_nothing_that_an_open_plan_will_name"],
    ),
    Mutant(
        "export-collects-by-age-alone",
        "files of the newest version are deleted because they are old",
        [Edit("dledger_client.export.upkeep:collect", "if name not in kept\n        and", "if")],
        [f"{SCRIPTS}.test_a_collection_takes_nothing_that_a_version_names"],
    ),
    Mutant(
        "export-collects-without-any-record",
        "without manifests and plans every old file is taken for forgotten",
        [
            Edit("dledger_client.export.upkeep:_named", "if number or plan is None:", "if number:"),
            Edit(
                "dledger_client.export.upkeep:collect",
                'name.startswith(f"{topic_folder(topic)}/")',
                "True",
            ),
        ],
        [f"{FOLDERS}.test_a_collection_without_any_record_takes_nothing"],
    ),
    Mutant(
        "export-names-files-that-lie-elsewhere",
        "a version names files that tasks made in a folder of another host",
        [Edit("dledger_client.export.run:_finish", "_check_there(work.storage, entries)", "pass")],
        [f"{FOLDERS}.test_files_that_lie_elsewhere_are_in_no_version"],
    ),
    Mutant(
        "export-publishes-what-a-rival-replaced",
        "a version has the sum of a file in whose place another exporter put his own",
        [Edit("dledger_client.export.run:_finish", "_check_replaced(work.storage, files)", "pass")],
        [f"{FOLDERS}.test_a_rivals_other_bytes_are_not_published_as_ours"],
    ),
    Mutant(
        "export-dates-a-version-from-its-beginning",
        "the grace time of an older version is over when its compaction is published",
        [
            Edit(
                "dledger_client.export.run:_finish",
                "made = engine",
                "began = clock()\n    made = engine",
            ),
            Edit("dledger_client.export.run:_finish", "        clock(),", "        began,"),
        ],
        [f"{SCRIPTS}.test_an_older_version_is_kept_for_the_grace_time_behind_its_compaction"],
    ),
    Mutant(
        "export-believes-any-digit",
        "plans and manifests are not held against their sums",
        [
            Edit(
                "dledger_client.export.manifests.records:fields_of",
                "int(found[1]) != crc32c(data[: found.start()] + data[found.end() :])",
                "False",
            )
        ],
        [f"{SCRIPTS}.test_an_end_that_is_not_what_was_written_is_believed_by_nobody"],
    ),
    Mutant(
        "export-believes-another-exports-checkpoint",
        "a version is taken from a checkpoint that was told from other manifests",
        [
            Edit(
                "dledger_client.export.manifests.checkpoint:load_checkpoint",
                "(last.number, crc32c(manifest))",
                '(last.number, said["manifest"])',
            )
        ],
        [f"{FOLDERS}.test_a_checkpoint_of_another_export_is_not_believed"],
    ),
    Mutant(
        "export-checkpoint-forgets-what-was-replaced",
        "the grace time of an older version is over when there is a checkpoint",
        [
            Edit(
                "dledger_client.export.manifests.history:keep_checkpoint",
                "if storage.size(path) is not None",
                "if False",
            )
        ],
        [f"{SCRIPTS}.test_an_older_version_is_kept_for_the_grace_time_behind_its_compaction"],
    ),
    Mutant(
        "export-takes-a-loss-for-compaction",
        "a file may lack rows of which its source does not say that they are compacted",
        [
            Edit(
                "dledger_client.export.files.parquet:Summary.finish",
                "if there != wanted:",
                "if False:",
            )
        ],
        [f"{COMPACTED}.test_what_a_source_leaves_out_without_a_word_is_in_no_file"],
    ),
    Mutant(
        "export-mixes-versions",
        "a version need not begin where the one before ends",
        [
            Edit(
                "dledger_client.export.manifests.history:load",
                "_check_goes_on(",
                "(lambda *_: None)(",
            )
        ],
        [f"{SCRIPTS}.test_versions_of_two_exports_are_not_mixed"],
    ),
)
