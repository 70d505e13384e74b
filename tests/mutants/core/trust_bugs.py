"""Known bugs of whom a member believes, and when it is believed: hellos, messages, quarantine."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

MEMBERSHIP: Final = "dledger.raft.membership.hellos:Membership"
HELLOS: Final = "unit.raft.test_hellos"
STEPS: Final = "unit.raft.test_quarantine_steps"

TRUST_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "unechoed-hello-is-believed",
        "a hello to an earlier process of this member is taken for news (D18)",
        [
            Edit(
                f"{MEMBERSHIP}.on_hello",
                "if hello.echo_session != context.outbox.session:",
                "if False:",
            )
        ],
        [f"{HELLOS}.test_a_hello_that_does_not_echo_this_process_is_answered_and_not_believed"],
    ),
    Mutant(
        "repeated-message-is-handled",
        "what arrives late or twice is handled like what is new (F2, F3)",
        [Edit(f"{MEMBERSHIP}.admit", "admission is not Arrival.FRESH or", "")],
        [f"{HELLOS}.test_a_message_counts_once_and_in_order"],
    ),
    Mutant(
        "forms-before-its-first-entry",
        "a member takes part while its first entry is in memory only (D4, D18)",
        [
            Edit(
                "dledger.raft.membership.joining:Joining._write",
                "if context.log.durable_index < 1:",
                "if False:",
            )
        ],
        [f"{HELLOS}.test_nobody_takes_part_before_the_first_entry_is_on_its_disk"],
    ),
    Mutant(
        "new-life-told-before-it-is-on-disk",
        "others record a life that a restart takes back (D18)",
        [
            Edit(
                f"{MEMBERSHIP}._say_hello",
                "self._life_in(durable) if context.formed else self.incarnation",
                "self.incarnation",
            )
        ],
        [f"{HELLOS}.test_a_new_life_is_told_when_it_is_on_disk"],
    ),
    Mutant(
        "trusted-before-its-disk-holds-the-barrier",
        "a quarantine ends when what a barrier confirmed is in memory (D18 c)",
        [
            Edit(
                "dledger.raft.membership.quarantine:Quarantine.advance",
                " or context.log.durable_index < barrier",
                "",
            )
        ],
        [f"{STEPS}.test_both_the_own_disk_and_the_commit_index_reach_the_barrier"],
    ),
    Mutant(
        "acknowledgement-for-another-peer",
        "what waits for the disk for one peer is told to the next (D4)",
        [
            Edit(
                "dledger.raft.gate:OutboundGate.hold",
                "newest.target == target and",
                "",
            )
        ],
        ["unit.raft.test_gate.test_an_acknowledgement_says_nothing_to_another_peer"],
    ),
)
