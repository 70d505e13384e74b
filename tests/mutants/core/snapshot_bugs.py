"""Known bugs of snapshots: what is in them, and the cluster that is made of one."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

TESTS: Final = "unit.snapshot.test_snapshots"

SNAPSHOT_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "snapshot-of-an-older-log",
        "the log of a snapshot ends before what its state has applied",
        [
            Edit(
                "dledger_broker.snapshots.keeping:Snapshots._write",
                "LogIndex(applied.index)",
                "LogIndex(applied.index - 1)",
            )
        ],
        [f"{TESTS}.test_a_snapshot_holds_what_is_applied_and_nothing_behind_it"],
    ),
    Mutant(
        "snapshot-with-a-tail",
        "a snapshot holds entries behind what its state has applied: perhaps not committed",
        [
            Edit(
                "dledger_broker.snapshots.keeping:Snapshots._write",
                "LogIndex(applied.index)",
                "view.log.last_index",
            )
        ],
        [f"{TESTS}.test_a_snapshot_holds_what_is_applied_and_nothing_behind_it"],
    ),
    Mutant(
        "snapshot-lets-segments-go",
        "segments are deleted between the copy of the state and that of the log",
        [Edit("dledger.log.commit_log:CommitLog.trim_head", " or self._keepers", "")],
        [f"{TESTS}.test_the_log_keeps_its_head_while_a_snapshot_is_made"],
    ),
    Mutant(
        "restored-members-are-strangers",
        "restored members do not know each other's lives: each takes the others for wiped ones",
        [
            Edit(
                "dledger.snapshot.restoring:restore_to",
                "incarnations=lives",
                "incarnations={member: lives[member]}",
            )
        ],
        [f"{TESTS}.test_a_snapshot_holds_what_is_applied_and_nothing_behind_it"],
    ),
    Mutant(
        "restored-in-an-old-term",
        "restored members begin in term 0, below the terms of their log",
        [Edit("dledger.snapshot.restoring:restore_to", "Term(applied.term)", "Term(0)")],
        [f"{TESTS}.test_a_snapshot_holds_what_is_applied_and_nothing_behind_it"],
    ),
    Mutant(
        "snapshot-with-a-life",
        "a snapshot says that it is the member's own data",
        [
            Edit(
                "dledger.snapshot.making:save_identity",
                "incarnation=NOBODY, ",
                "",
            )
        ],
        [f"{TESTS}.test_no_member_starts_with_a_snapshot"],
    ),
    Mutant(
        "snapshot-without-a-segment",
        "a segment that is missing when the log is linked is left out",
        [
            Edit(
                "dledger.snapshot.making:save_log",
                "name.endswith(INDEX_SUFFIX) and not",
                "not",
            )
        ],
        [f"{TESTS}.test_a_segment_that_is_missing_makes_no_snapshot"],
    ),
    Mutant(
        "snapshot-beside-a-planned-trim",
        "segments that are about to go are taken for parts of the snapshot",
        [
            Edit(
                "dledger_broker.snapshots.keeping:Snapshots._write",
                "while view.log.is_trimming:",
                "while False:",
            )
        ],
        [f"{TESTS}.test_a_trim_that_was_planned_before_comes_first"],
    ),
    Mutant(
        "wiped-member-of-a-restored-cluster",
        "a member that lost its disk does not know its restored group by the old first entry",
        [
            Edit(
                "dledger.raft.membership.formation:_mismatch",
                "if genesis.group != group:",
                "if genesis.cluster == 'old' or genesis.group != group:",
            )
        ],
        ["unit.raft.test_formation.test_a_restored_group_keeps_the_first_entry_of_the_old_cluster"],
    ),
)
