"""Known bugs of pace: when a leader speaks and is believed, gathering, what wakes the driver."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import LIVENESS, Mutant
from tests.mutants.rewrite import Edit

PACE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "last-words-of-a-lost-leader-believed",
        "what a killed leader sent before it died puts its successor off by a timeout (D17)",
        [
            Edit(
                "dledger.raft.leadership.election:Elections._doubt_if_late",
                "if late and",
                "if late and False and",
            )
        ],
        [
            "unit.raft.test_group_basic"
            ".test_the_last_words_of_a_killed_leader_do_not_put_off_its_successor"
        ],
    ),
    Mutant(
        "lone-proposal-waits",
        "small proposals wait for more to come, also when nothing is on its way",
        [
            Edit(
                "dledger.raft.commit.cutting:Cutting.may_cut",
                "return is_all_committed and proposals.are_gathered",
                "return False",
            )
        ],
    ),
    Mutant(
        "waits-for-those-who-left",
        "an entry waits without end for callers who do not come back",
        [
            Edit(
                "dledger.raft.commit.gathering:Gathering.tick",
                "if now >= self._until:",
                "if False:",
            )
        ],
        [f"{LIVENESS}.test_a_caller_who_stays_away_keeps_nobody_waiting"],
    ),
    Mutant(
        "window-opens-unseen",
        "what a member in quarantine may be sent waits until something else is to be done",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.on_append_answer",
                "        self._pump(progress)\n        if message.quarantined:",
                "        if message.quarantined:",
            )
        ],
    ),
    Mutant(
        "quiet-leader-is-deposed",
        "heartbeats of a quiet leader come later than followers wait",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.heartbeat",
                "QUIET_HEARTBEAT_SHARE * settings",
                "2.5 * settings",
            )
        ],
        ["test_flush.test_an_idle_group_writes_nothing"],
    ),
    Mutant(
        "quiet-though-there-is-news",
        "what is lost of the first entry after a quiet time waits for a slow heartbeat",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.pump",
                "if last_index > context.engine.commit_index:",
                "if False:",
            )
        ],
        [f"{LIVENESS}.test_what_a_quiet_leader_begins_to_say_is_repeated_after_a_heartbeat"],
    ),
    Mutant(
        "cut-unannounced",
        "nobody is told that what waits becomes an entry, now that the one before is committed",
        [
            Edit(
                "dledger.raft.group:RaftGroup.has_outputs",
                "return self._applying.ready or self._cutting.cuts_now",
                "return self._applying.ready",
            )
        ],
    ),
)
