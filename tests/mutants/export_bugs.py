"""Known bugs of exports: each breaks one promise of the protocol."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

EXPORT: Final = "dledger_client.export"
SCRIPTS: Final = "test_exports"
RACE: Final = f"{SCRIPTS}.test_two_exporters_at_once_publish_each_version_once"
ADOPTED: Final = f"{SCRIPTS}.test_an_open_plan_is_finished_and_not_replaced"

EXPORT_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "export-overwrites-what-is-published",
        "plans and manifests are published over what is there",
        [
            Edit(
                f"{EXPORT}.storage:Storage.put_if_absent",
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
            Edit(f"{EXPORT}.storage:Storage.install", "self._disk.sync_file(staged.path)", "pass"),
            Edit(
                f"{EXPORT}.storage:Storage.settle", "self._disk.sync_file(self.path(name))", "pass"
            ),
        ],
        [f"{SCRIPTS}.test_what_is_published_survives_a_power_cut_right_behind_it"],
    ),
    Mutant(
        "export-forgets-folders",
        "names are not synced before somebody builds on them",
        [Edit(f"{EXPORT}.storage:Storage.install", "self.settle(name)", "pass")],
        [f"{SCRIPTS}.test_what_is_published_survives_a_power_cut_right_behind_it"],
    ),
    Mutant(
        "export-builds-on-a-rivals-unsynced-name",
        "a file that is reused is taken for durable because it is there",
        [Edit(f"{EXPORT}.task:_found", "work.storage.settle(name)", "pass")],
        [f"{SCRIPTS}.test_a_manifest_built_on_a_rivals_files_survives_a_power_cut"],
    ),
    Mutant(
        "export-plans-anew",
        "an open plan is not adopted: a new one is made in its place",
        [
            Edit(
                f"{EXPORT}.run:export_once",
                "plan = history.open_plan(storage, number)\n    if plan is not None and",
                "plan = None\n    if plan is not None and",
            ),
            Edit(
                f"{EXPORT}.run:export_once",
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
                f"{EXPORT}.run:export_once",
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
                f"{EXPORT}.parquet:check",
                "for batch in read_batches(path, columns):",
                "for batch in ():",
            ),
            Edit(f"{EXPORT}.parquet:check", "crc = summary.finish()", "crc = footer.crc"),
        ],
        [f"{SCRIPTS}.test_a_file_that_is_not_whole_is_made_again"],
    ),
    Mutant(
        "export-takes-anybodys-file",
        "a file of another topic's life is reused",
        [
            Edit(
                f"{EXPORT}.parquet:check",
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
                f"{EXPORT}.planning:_lost",
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
                f"{EXPORT}.run:_finish",
                "tuple(each.path for merge in plan.merges for each in merge.inputs)",
                "()",
            )
        ],
        [f"{SCRIPTS}.test_a_compaction_that_dies_at_any_call_changes_no_row"],
    ),
)
