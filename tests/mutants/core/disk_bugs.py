"""Known bugs about disks that do not hold what they held: damage met late, old copies (D18)."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import DISK, Mutant
from tests.mutants.rewrite import Edit

DISK_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "sends-though-it-does-not-lead",
        "a member that leads no more sends entries when a link changes",
        [
            Edit(
                "dledger.raft.replication.leader:Replication.link_changed",
                "if self._context.engine.is_leader:",
                "if True:",
            )
        ],
    ),
    Mutant(
        "acknowledges-an-earlier-reign",
        "what waits for the disk since an earlier term speaks in an answer of this one",
        [
            Edit(
                "dledger.raft.gate:OutboundGate.hold",
                "if held and held[-1].term != term:",
                "if False:",
            ),
            Edit(
                "dledger.raft.gate:_cumulated", "assert earlier.term == later.term,", "assert True,"
            ),
        ],
        [
            "test_lost_reign.test_what_was_acknowledged_to_a_lost_reign_is_not_acknowledged_in_the_next"
        ],
    ),
    Mutant(
        "low-follower-drops-entries",
        "below the mark for callers' writes no entry is taken, not even a new leader's first (I16)",
        [
            Edit(
                "dledger.raft.replication.follower:Following.on_append",
                "context.log.disk_room is not DiskRoom.FULL",
                "context.log.disk_room is DiskRoom.ENOUGH",
            )
        ],
        [f"{DISK}.test_a_group_without_room_for_writes_elects_serves_and_takes_a_trim"],
    ),
    Mutant(
        "writes-taken-without-room",
        "a leader with room takes what no majority has room for, and its fate stays open (I16)",
        [
            Edit(
                "dledger.raft.replication.leader:Replication._weigh_room",
                "if there[DiskRoom.ENOUGH] < context.majority <=",
                "if 99 < context.majority <=",
            )
        ],
        [f"{DISK}.test_nothing_is_taken_that_only_members_without_room_could_store"],
    ),
    Mutant(
        "refill-sends-unchecked-bytes",
        "entries are read from disk and sent as they are, damaged or not (I15)",
        [Edit("dledger.raft.wire.loading:read_payload", "_check_entries(data, payload)", "pass")],
        [f"{DISK}.test_damage_met_while_filling_another_member_is_mended"],
    ),
    Mutant(
        "damage-taken-for-a-cut",
        "entries that cannot be read for a follower are taken for cut or trimmed (I15)",
        [
            Edit(
                "dledger.raft.wire.loading:check_payload_held",
                "while index <= payload.last:",
                "while False:",
            )
        ],
        [f"{DISK}.test_damage_met_while_filling_another_member_is_mended"],
    ),
    Mutant(
        "forgotten-acknowledgement-not-noticed",
        "a follower that lost what it acknowledged is waited for, for ever (D18)",
        [Edit("dledger.raft.replication.progress:Progress.forgets", "hint < self.match", "False")],
        [f"{DISK}.test_an_old_copy_under_a_steady_leader_begins_a_new_life:0"],
    ),
    Mutant(
        "forgotten-term-not-noticed",
        "a member that knows an earlier term than it promised is taken as it is (D18)",
        [
            Edit(
                "dledger.raft.membership.formation:forgotten_by",
                "hello.term >= promise.term",
                "True",
            )
        ],
        [f"{DISK}.test_an_old_copy_of_an_earlier_term_is_noticed_by_whoever_heard_the_later_one"],
    ),
    Mutant(
        "old-copy-still-matches",
        "what an old copy acknowledged before is still counted (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership.forget_life",
                "self._hooks.new_life(peer)",
                "pass",
            )
        ],
        [f"{DISK}.test_a_member_of_an_old_copy_counts_no_more_and_says_why"],
    ),
    Mutant(
        "old-copy-still-heard",
        "an old copy is refilled and counted before it has begun a new life (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership.admit",
                "or sender in self._forgetful",
                "",
            )
        ],
        [f"{DISK}.test_a_member_of_an_old_copy_counts_no_more_and_says_why"],
    ),
    Mutant(
        "renewed-life-is-not-quarantined",
        "a member that is told that it has forgotten goes on as one that is trusted (D18)",
        [
            Edit(
                "dledger.raft.durability:Durability.renew_life",
                "True, lifted=False",
                "False, lifted=True",
            )
        ],
        [f"{DISK}.test_an_old_copy_elects_nobody_who_misses_its_commits"],
    ),
    Mutant(
        "renewed-life-in-memory-only",
        "a new life is not written: a restart goes on with the one that forgot (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._life_in",
                "return state.incarnations.get(self._context.member, self._first_life)",
                "return self._first_life",
            )
        ],
        [f"{DISK}.test_a_renewed_life_is_on_disk_and_the_one_before_is_refused"],
    ),
    Mutant(
        "old-copy-heeds-only-whom-it-knows",
        "an old copy is deaf to a member that began a new life since (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership.on_hello",
                "if hello.forgotten and",
                "if hello.forgotten and hello.incarnation == self.recorded(sender) and",
            )
        ],
        [f"{DISK}.test_an_old_copy_heeds_who_began_a_new_life_since"],
    ),
    Mutant(
        "renewal-while-adopting-is-lost",
        "a member that is told of forgotten promises goes on being adopted as a new one (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._begin_anew",
                "context.durability.begin_life({context.member: incarnation}, quarantined=True)",
                "self._first_life = incarnation",
            )
        ],
        [
            f"{DISK}.test_a_copy_from_before_the_group_formed_is_told_while_it_is_being_adopted",
        ],
    ),
    Mutant(
        "old-copy-leads-on",
        "a leader that is told that it has forgotten leads on in its new life (D18)",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._begin_anew",
                "self._hooks.renewed()",
                "pass",
            )
        ],
        [
            f"{DISK}.test_an_old_copy_that_leads_steps_down_when_it_is_told:{seed}"
            for seed in range(2, 5)
        ],
    ),
    Mutant(
        "promise-of-the-life-before-binds-the-new-one",
        "a wiped member is said to have forgotten what its life before promised",
        [
            Edit(
                "dledger.raft.membership.formation:Promise.told",
                " if life == self.life else term",
                "",
            )
        ],
    ),
    Mutant(
        "forgetful-for-ever",
        "a new life is treated like the old copy before it",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._may_begin",
                "self._forgetful.discard(sender)",
                "pass",
            )
        ],
    ),
    Mutant(
        "hello-tells-an-undurable-term",
        "a member promises a term that a power cut may take from it: it is called an old copy",
        [
            Edit(
                "dledger.raft.membership.hellos:Membership._say_hello",
                "durable.term if context.formed else 0",
                "context.durability.state.term if context.formed else 0",
            )
        ],
    ),
)
