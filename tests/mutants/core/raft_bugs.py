"""Known bugs of elections, replication, commit, reads and quarantine."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import LIVENESS, QUARANTINE, SAFETY, Mutant
from tests.mutants.rewrite import Edit

ELECTIONS: Final = "dledger.raft.leadership.election:Elections"

RAFT_BUGS: Final[Sequence[Mutant]] = (
    # Durable before visible.
    Mutant(
        "ack-before-fsync",
        "what is in memory counts as on disk, on leader and follower (D4, F11)",
        [
            Edit(
                "dledger.raft.durability:Durability.covered_index",
                "return self._log.durable_index",
                "return self._log.last_index",
            )
        ],
    ),
    Mutant(
        "leader-counts-itself-before-sync",
        "the leader is part of the majority as soon as it appends (F13)",
        [
            Edit(
                "dledger.raft.engine._pysyncobj:Engine._SyncObj__getEntries",
                "count == 1 and first > self._covered_index()",
                "False",
            )
        ],
        [f"{SAFETY}.test_f13_a_leader_counts_itself_only_when_its_disk_holds_the_entry"],
    ),
    Mutant(
        "vote-before-sync",
        "a vote leaves before term and vote are on disk (I5)",
        [
            Edit(
                f"{ELECTIONS}._when_durable",
                "hard_version=context.durability.version",
                "hard_version=0",
            )
        ],
    ),
    Mutant(
        "vote-forgotten-at-restart",
        "the vote of the term is not read back (F11)",
        [
            Edit(
                "dledger.log.hard_state:parse_hard_state",
                "vote=vote if flags & _VOTED else None",
                "vote=None",
            )
        ],
    ),
    Mutant(
        "hard-state-not-synced",
        "the hard state file is renamed into place without fsync",
        [Edit("dledger.log.atomic_file:publish", "file.fdatasync()", "pass")],
    ),
    Mutant(
        "hard-state-name-not-synced",
        "the folder is not synced after the rename",
        [Edit("dledger.log.atomic_file:publish", "if sync_name:", "if False:")],
    ),
    Mutant(
        "apply-before-commit",
        "entries are applied as soon as they are on disk",
        [
            Edit(
                "dledger.raft.commit.applying:Applying.limit",
                "min(context.engine.commit_index, context.durability.covered_index)",
                "context.durability.covered_index",
            )
        ],
    ),
    Mutant(
        "apply-beyond-durable",
        "committed entries are applied before this member's own disk holds them (D6)",
        [
            Edit(
                "dledger.raft.commit.applying:Applying.limit",
                "min(context.engine.commit_index, context.durability.covered_index)",
                "context.engine.commit_index",
            )
        ],
    ),
    # Elections.
    Mutant(
        "double-vote",
        "a second candidate of the same term gets a vote, too",
        [
            Edit(
                f"{ELECTIONS}.on_vote_request",
                "granted = engine.vote_request(",
                "engine._SyncObj__votedForNodeId = None\n"
                "            granted = engine.vote_request(",
            )
        ],
    ),
    Mutant(
        "duplicate-vote-counted",
        "votes are counted, not voters (F8)",
        [
            Edit(
                "dledger.raft.gate:VoteTally.add",
                "if voter in self.granted:\n            return False",
                "if voter in self.granted:\n            return granted",
            )
        ],
        [f"{SAFETY}.test_f8_an_answer_to_a_repeated_request_counts_once"],
    ),
    Mutant(
        "incomplete-candidate-elected",
        "a vote is given without looking at the candidate's log",
        [
            Edit(
                f"{ELECTIONS}.on_vote_request",
                "sender, message.term, message.last_index, message.last_term, context.now",
                "sender, message.term, 1 << 62, 1 << 62, context.now",
            ),
            Edit(
                f"{ELECTIONS}._is_complete",
                "return (last_term, last_index) >= (log.last_term, log.last_index)",
                "return True",
            ),
        ],
    ),
    Mutant(
        "no-pre-vote",
        "a timer that fires raises the term at once (L1)",
        [Edit(f"{ELECTIONS}._campaign_is_due", "if self._pre_vote.won:", "if True:")],
        [f"{LIVENESS}.test_l1_a_member_that_only_sends_disturbs_nobody"],
    ),
    Mutant(
        "no-pause-guard",
        "a resumed member judges the leader by a timer that ran while it was stopped (L2)",
        [
            Edit(f"{ELECTIONS}.guard_pause", "if gap <= self._paused_after:", "if True:"),
        ],
        [
            f"{LIVENESS}.test_l2_a_pause_of_all_followers_deposes_nobody:{seed}"
            for seed in range(10)
        ],
    ),
    Mutant(
        "no-stickiness",
        "a member that hears its leader would vote for another all the same (L1)",
        [Edit(f"{ELECTIONS}.on_pre_vote", "or heard\n", "\n")],
        [f"{LIVENESS}.test_l1_a_member_that_misses_only_the_leader_disturbs_nobody"],
    ),
    Mutant(
        "voters-depose-whom-they-elected",
        "a member that has just voted helps the next candidate into a higher term (D17)",
        [Edit(f"{ELECTIONS}.on_pre_vote", "or self._has_just_elected(sender)\n", "\n")],
        [
            "unit.raft.test_liveness_scripts.test_d17_a_voter_helps_nobody_to_depose_the_winner:false"
        ],
    ),
    Mutant(
        "no-check-quorum",
        "a leader that hears no majority leads on (L3)",
        [
            Edit(
                "dledger.raft.engine._pysyncobj:Engine.tick",
                "if self.is_leader:",
                "self.excuse_silence(now)\n        if self.is_leader:",
            )
        ],
        [f"{LIVENESS}.test_l3_an_isolated_leader_steps_down_soon"],
    ),
    # Replication and commit.
    Mutant(
        "unconditional-truncation",
        "an append message cuts everything behind prev, equal or not (F2)",
        [
            Edit(
                "dledger.raft.engine.journal:Journal._add_run",
                "if header.index > last or log.term_at(LogIndex(header.index)) != header.term:",
                "if True:",
            )
        ],
        [f"{SAFETY}.test_f2_a_range_sent_twice_cuts_nothing"],
    ),
    Mutant(
        "no-commit-clamp",
        "a follower commits to the end of its own log (F1)",
        [
            Edit(
                "dledger.raft.gate:proven_commit",
                "return min(leader_commit, prev_index if last_index is None else last_index)",
                "return leader_commit",
            )
        ],
        [f"{SAFETY}.test_f1_a_deposed_leader_never_commits_its_own_suffix"],
    ),
    Mutant(
        "stale-acknowledgement",
        "an answer of an older reign counts in this one (F3)",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.on_append_answer",
                "not engine.is_leader or message.term != engine.term",
                "not engine.is_leader",
            ),
            Edit(
                "dledger.raft.gate:PeerSession.admit", "message.sequence <= self._sequence", "False"
            ),
        ],
        [f"{SAFETY}.test_f3_an_acknowledgement_of_an_older_reign_counts_nothing"],
    ),
    Mutant(
        "ack-before-quorum",
        "the leader commits what its own disk holds",
        [
            Edit(
                "dledger.raft.engine._pysyncobj:Engine.tick",
                "self._onTick(0.0)",
                "self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, "
                "self._covered_index())\n            self._onTick(0.0)",
            )
        ],
    ),
    Mutant(
        "older-term-committed-by-count",
        "a leader commits entries of earlier terms by counting copies (Raft figure 8)",
        [
            Edit(
                "pysyncobj.syncobj:SyncObj._onTick",
                "if commitTerm != self.__raftCurrentTerm:",
                "if False:",
            )
        ],
        [f"{SAFETY}.test_figure_8_entries_of_earlier_terms_are_not_committed_by_counting"],
    ),
    Mutant(
        "acknowledged-more-than-stored",
        "a follower acknowledges what the leader has, not what it holds itself",
        [
            Edit(
                "dledger.raft.replication.follower:Following._answer",
                "match = min(match, covered)",
                "match = max(match, message.commit_index)",
            )
        ],
    ),
    Mutant(
        "one-index-per-back-off",
        "after a mismatch the leader tries the entry before (L4)",
        [
            Edit(
                "dledger.raft.replication.leader:Replication._back_off",
                "if progress.mismatched(message.number, low + 1) and not self._pump(progress):",
                "if progress.mismatched(message.number, progress.next - 1) and False:",
            )
        ],
        [f"{LIVENESS}.test_l4_a_deposed_leader_rejoins_at_once"],
    ),
    Mutant(
        "unbounded-tail",
        "a leader without a quorum takes everything (L10)",
        [
            Edit(
                "dledger.raft.commit.refusals:Refusals.refusal",
                "self._own_tail_bytes() + waiting_bytes >= limits.uncommitted_bytes_max",
                "False",
            )
        ],
        [f"{LIVENESS}.test_l10_the_uncommitted_tail_is_bounded"],
    ),
    # Reads.
    Mutant(
        "stale-leader-read",
        "a leader confirms a read by itself (F16)",
        [
            Edit(
                "dledger.raft.leadership.barrier:Barriers._finish_if_confirmed",
                "if len(current.confirmed) + 1 < self._context.majority:",
                "if False:",
            ),
            Edit(
                "dledger.raft.leadership.barrier:Barriers._finish_if_confirmed",
                "if len(others) + 1 >= self._context.majority:",
                "if True:",
            ),
        ],
        [f'{SAFETY}.test_f16_a_stale_leader_confirms_no_read:"a"'],
    ),
    Mutant(
        "old-answer-confirms-a-read",
        "an answer to what was sent before a read began confirms it, too (F16)",
        [
            Edit(
                "dledger.raft.leadership.barrier:Barriers.on_answer",
                "number >= current.thresholds[peer]",
                "True",
            )
        ],
        ["test_stale_reads.test_an_answer_to_what_was_sent_before_confirms_no_read"],
    ),
    Mutant(
        "read-before-own-entry",
        "a new leader confirms reads before it knows what was committed",
        [
            Edit(
                "dledger.raft.leadership.barrier:Barriers._own_entry_committed",
                "return context.log.term_at(commit_index) == context.engine.term",
                "return True or commit_index",
            )
        ],
    ),
    Mutant(
        "genesis-sent-once",
        "an echo of a hello without the genesis is taken for one of the genesis (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._is_heard",
                " and not self._needs_genesis(peer)",
                "",
            )
        ],
        [f"{QUARANTINE}.test_a_lost_genesis_is_sent_again"],
    ),
    Mutant(
        "unrecorded-life-is-heard",
        "what a new life answers before its hello has arrived is taken for its wiped life's (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership.admit",
                "if admission is Arrival.UNKNOWN_SESSION or self._is_off_record(sender):",
                "if admission is Arrival.UNKNOWN_SESSION:",
            )
        ],
        [f"{QUARANTINE}.test_answers_that_overtake_the_hello_of_a_new_life_count_for_nothing"],
    ),
    Mutant(
        "echo-of-the-process-before",
        "a hello echoes the state number of an earlier process of its receiver (sim seed 339)",
        [Edit("dledger.raft.membership.hellos:Membership._say_hello", "or not known", "")],
        [f"{QUARANTINE}.test_a_restarted_member_whose_greeting_is_lost_is_heard_in_the_end"],
    ),
    Mutant(
        "new-life-not-noticed",
        "the match index of a member that came back without its data is kept (D18 a)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._may_begin",
                "self._hooks.new_life(sender)",
                "pass",
            )
        ],
        [f'{QUARANTINE}.test_a_wiped_member_is_refilled_and_trusted_when_all_met_it:"b"'],
    ),
    Mutant(
        "term-not-raised-in-quarantine",
        "a member leaves quarantine in a term whose vote it may have given (D18 b)",
        [
            Edit(
                "dledger.raft.membership.quarantine:Quarantine.advance",
                "if not self._term_is_spent(recorded.term):",
                "if False:",
            )
        ],
        [f"{QUARANTINE}.test_a_forgotten_vote_elects_no_second_leader"],
    ),
    Mutant(
        "no-campaign-on-a-broken-connection",
        "a killed leader is missed only when the election timer fires (D17)",
        [
            Edit(f"{ELECTIONS}.dial_failed", "== peer", "is Ellipsis"),
            Edit(f"{ELECTIONS}.link_down", "== peer", "is Ellipsis"),
        ],
        [f"{LIVENESS}.test_a_broken_connection_elects_within_a_fraction_of_the_timeout"],
    ),
    Mutant(
        "higher-term-not-told",
        "a stale leader is ignored and never learns of the newer term (L9)",
        [
            Edit(
                "dledger.raft.replication.follower:Following.on_append",
                "context.send(sender, TermNotice(engine.term))",
                "pass",
            )
        ],
        [f"{LIVENESS}.test_l9_a_member_of_a_higher_term_is_heard"],
    ),
    Mutant(
        "vote-asked-for-once",
        "a request that is not answered is not repeated (L12)",
        [Edit(f"{ELECTIONS}._ask_again", "context.now + context.settings.heartbeat", "math.inf")],
        [f"{LIVENESS}.test_l12_a_lost_vote_is_asked_for_again"],
    ),
    Mutant(
        "proposals-never-settled",
        "a leader that was cut off leaves its callers waiting (L7)",
        [
            Edit(
                "dledger.raft.commit.proposals:Proposals.tick",
                "self._decide_by is not None and now >= self._decide_by",
                "False",
            )
        ],
        [f"{LIVENESS}.test_l7_every_proposal_is_settled"],
    ),
    Mutant(
        "transfer-under-way-takes-writes",
        "entries are still made while leadership is handed over (L15)",
        [Edit("dledger.raft.commit.cutting:Cutting.cut", "and not self._transfer.active", "")],
        [f"{LIVENESS}.test_a_transfer_succeeds_under_load_and_fails_no_write"],
    ),
    Mutant(
        "latency-clocked-by-heartbeat",
        "entries wait for the next heartbeat (L8)",
        [Edit("dledger.raft.group:RaftGroup.outputs", "self._replication.pump()", "pass")],
        [f"{LIVENESS}.test_l8_latency_is_not_clocked_by_the_heartbeat"],
    ),
    # Outcomes.
    Mutant(
        "unknown-told-as-failed",
        "a write whose fate is open is told as certainly not stored (D11)",
        [
            Edit(
                "dledger.raft.commit.proposals:_give_up",
                "Outcome.UNKNOWN,\n                Code.UNKNOWN_OUTCOME,",
                "Outcome.NOT_STORED,\n                Code.NOT_LEADER,",
            )
        ],
    ),
    # Quarantine.
    Mutant(
        "no-quarantine",
        "a wiped member is a member at once (D18)",
        [
            Edit(
                "dledger.raft.membership.joining:Joining._decide",
                "quarantined=decision.step is Forming.QUARANTINE",
                "quarantined=False",
            )
        ],
        [f"{QUARANTINE}.test_a_wiped_member_elects_nobody_who_misses_its_commits"],
    ),
    Mutant(
        "quarantine-ends-with-a-majority",
        "not every other member must have recorded the new life (D18 a)",
        [
            Edit(
                "dledger.raft.membership.quarantine:Quarantine.advance",
                "if recorded.missing:",
                "if len(recorded.missing) > len(context.peers) // 2:",
            )
        ],
        [
            f"{QUARANTINE}.test_quarantine_lasts_while_one_member_cannot_be_reached",
            f"{QUARANTINE}.test_a_wiped_member_elects_nobody_who_misses_its_commits",
        ],
    ),
    Mutant(
        "quarantine-without-barrier",
        "a refilled member is trusted before it holds what a barrier confirmed (D18 c)",
        [
            Edit(
                "dledger.raft.membership.quarantine:Quarantine.advance",
                "if self._barrier is None:",
                "if False:",
            ),
            Edit(
                "dledger.raft.membership.quarantine:Quarantine.advance",
                "barrier = LogIndex(self._barrier)",
                "barrier = LogIndex(0)",
            ),
        ],
        ["unit.raft.test_quarantine_steps.test_a_barrier_is_asked_for_once_a_heartbeat"],
    ),
    Mutant(
        "quarantined-answers-count",
        "a quarantined member's acknowledgements are part of majorities",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.on_append_answer",
                "if message.quarantined:",
                "if False:",
            )
        ],
        ["unit.raft.test_quarantine.test_in_quarantine_nothing_of_it_counts"],
    ),
)
