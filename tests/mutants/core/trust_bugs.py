"""Known bugs of whom a member believes, and when it is believed: hellos, messages, quarantine.

Also of what a member takes from a connection on which anybody may write.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

MEMBERSHIP: Final = "dledger.raft.membership.hellos:Membership"
HELLOS: Final = "unit.raft.test_hellos"
STEPS: Final = "unit.raft.test_quarantine_steps"

STRANGERS: Final = "unit.raft_host.test_link_strangers"
STREAM: Final = "dledger.raft.links.frame_stream:FrameStream"
LISTENER: Final = "dledger.raft.links.peer_listener:PeerListener"
ACCEPTED: Final = "dledger.raft.links.peer_listener:_Accepted"
LINK: Final = "dledger.raft.links.peer_link:PeerLink"
HOSTS: Final = "dledger.raft.links.peer_address:PeerAddress.hosts"
MAY_SAY: Final = "dledger.raft.links.line_budget:LineBudget.may_say"
LINKS: Final = "unit.raft_host.test_peer_links"
ON_A_CLOCK: Final = "unit.raft_host.test_links_on_a_clock"

LINK_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "frame-cut-short-is-handed-over",
        "a frame that has not come whole is taken for one",
        [Edit(f"{STREAM}._cut_out", "if start + size > end:", "if False:")],
        [f"{STRANGERS}.test_frames_are_whole_however_their_bytes_come"],
    ),
    Mutant(
        "large-frame-loses-its-beginning",
        "what of a large frame lay in the buffer is not kept",
        [
            Edit(
                f"{STREAM}._keep",
                "self._large[: self._large_filled] = self._buffer[at + SIZE.size : end]",
                "pass",
            )
        ],
        [f"{STRANGERS}.test_frames_are_whole_however_their_bytes_come"],
    ),
    Mutant(
        "frame-of-an-older-connection-counts",
        "what was under way on a link that its peer has given up is delivered behind newer news",
        [Edit(f"{ACCEPTED}._take", "elif self._listener.is_current(self):", "elif True:")],
        [f"{STRANGERS}.test_the_newest_connection_of_a_peer_counts"],
    ),
    Mutant(
        "two-connections-of-one-peer",
        "the older connection of a peer stays open beside the newer one",
        [
            Edit(
                f"{LISTENER}.greeted",
                "if older is not None:",
                "if False:",
            )
        ],
        [f"{STRANGERS}.test_the_newest_connection_of_a_peer_counts"],
    ),
    Mutant(
        "frame-of-any-size-is-awaited",
        "a peer makes a member reserve memory for a frame that no member sends (I17)",
        [Edit(f"{STREAM}._cut_out", "if size > self.frame_size_max:", "if False:")],
        [f"{STRANGERS}.test_a_peer_that_announces_more_than_any_frame_has_is_cut_off"],
    ),
    Mutant(
        "strangers-may-announce-as-much-as-peers",
        "whoever dials makes a member reserve memory before it has said who it is (I17)",
        [Edit(f"{ACCEPTED}.__init__", "GREETING_SIZE_MAX", "16 << 20")],
        [f"{STRANGERS}.test_a_stranger_that_announces_much_is_cut_off_before_it_is_read"],
    ),
    Mutant(
        "link-queue-without-bound",
        "messages for a peer that reads nothing pile up (I17)",
        [
            Edit(
                f"{LINK}.send",
                "if self._queue_bytes > self._settings.queue_bytes_max:",
                "if False:",
            )
        ],
        [f"{STRANGERS}.test_a_peer_that_reads_nothing_resets_the_link"],
    ),
    Mutant(
        "full-connection-is-written-to",
        "the transport's buffer takes what should wait in the bounded queue (I17)",
        [
            Edit(
                f"{LINK}._write_out",
                "if connection.stream.is_full:",
                "if False:",
            )
        ],
        [f"{STRANGERS}.test_a_peer_that_reads_nothing_resets_the_link"],
    ),
    Mutant(
        "broken-link-is-redialled-at-once-for-ever",
        "a peer that accepts and closes is dialled thousands of times a second",
        [Edit(f"{LINK}._dial_for_ever", "stood >= LASTING_SECONDS:", "True:")],
        [
            f"{ON_A_CLOCK}.test_a_link_that_breaks_at_once_backs_off",
            f"{ON_A_CLOCK}.test_two_processes_of_one_name_take_turns_of_a_second",
        ],
    ),
    Mutant(
        "two-broken-links-wake-each-other",
        "who hears a peer dials it at once, although its last link broke as soon as it stood",
        [Edit(f"{LINK}._dial_for_ever", "until_heard=not was_up", "until_heard=True")],
        [f"{ON_A_CLOCK}.test_a_link_that_breaks_at_once_backs_off"],
    ),
    Mutant(
        "lasting-link-backs-off",
        "a member that died is noticed only after a back-off (D17)",
        [Edit(f"{LINK}._dial_for_ever", "stood >= LASTING_SECONDS:", "False:")],
        [f"{ON_A_CLOCK}.test_peer_link_to_a_killed_member"],
    ),
    Mutant(
        "slow-redial-is-given-up",
        "a redial over a long way is given up before its answer can come, again and again",
        [
            Edit(
                f"{LINK}._dial",
                "timeout = max(timeout, self._settings.redial_timeout)",
                "timeout = self._settings.redial_timeout",
            )
        ],
        [f"{ON_A_CLOCK}.test_a_redial_that_is_slow_is_neither_given_up_nor_repeated"],
    ),
    Mutant(
        "young-link-that-breaks-tells-no-failed-dial",
        "the first dial after a link that had not lasted is like any other (D17)",
        [
            Edit(
                f"{LINK}._dial_for_ever",
                "was_up = stood is not None",
                "was_up = stood is not None and stood >= LASTING_SECONDS",
            )
        ],
        [f"{ON_A_CLOCK}.test_a_young_link_that_cannot_be_dialled_again_is_told_within_the_limit"],
    ),
    Mutant(
        "made-up-reasons-silence-the-log",
        "strangers use the lines up, and a member that is refused later is not told of",
        [Edit(MAY_SAY, "self._left + (now - self._seen_at) / LINE_SECONDS", "self._left")],
        [f"{STRANGERS}.test_made_up_reasons_do_not_silence_the_next_for_ever"],
    ),
    Mutant(
        "made-up-reasons-fill-the-log",
        "strangers make a member write as many lines as they like (I17)",
        [Edit(MAY_SAY, "if self._left < 1:", "if False:")],
        [f"{STRANGERS}.test_made_up_reasons_do_not_silence_the_next_for_ever"],
    ),
    Mutant(
        "burst-of-strangers-without-bound",
        "only a later turn of the loop forgets the oldest, so a burst takes all file handles (I17)",
        [Edit("dledger.raft.links.strangers:Strangers.put", "del waiting[gone]", "pass")],
        [f"{STRANGERS}.test_a_burst_of_strangers_is_bounded_within_one_turn"],
    ),
    Mutant(
        "peers-of-many-groups-are-strangers",
        "members that all dial a new start at once close each other's connections",
        [Edit(f"{LISTENER}.add_group", "STRANGERS_MAX + peers", "STRANGERS_MAX")],
        [f"{STRANGERS}.test_a_burst_of_strangers_is_bounded_within_one_turn"],
    ),
    Mutant(
        "closed-listener-takes-a-link",
        "after a new start in one process a peer's link stands to the listener before",
        [Edit(f"{LISTENER}.stranger", "if self._is_closed:", "if False:")],
        [f"{STRANGERS}.test_a_closed_listener_takes_nothing_that_waited"],
    ),
    Mutant(
        "dialling-ends-silently",
        "an error of the task that dials leaves a member that never dials its peer again (I16)",
        [Edit(f"{LINK}._run", "self._or_fail", "FailStop(lambda _error: True)")],
        [f"{LINKS}.test_an_error_that_nobody_thought_of_ends_the_member"],
    ),
    Mutant(
        "error-in-sending-is-swallowed",
        "what a group wants to send is lost by an error of ours, and nobody hears of it (I16)",
        [Edit(f"{LINK}.flush", "self._or_fail", "FailStop(lambda _error: True)")],
        [f"{LINKS}.test_an_error_that_nobody_thought_of_ends_the_member"],
    ),
    Mutant(
        "error-in-a-frame-is-only-printed",
        "a member goes on although a message of a peer met an error of ours (I16)",
        [Edit(f"{ACCEPTED}.frame_came", "if self.target is None:", "if True:")],
        [f"{LINKS}.test_an_error_that_nobody_thought_of_ends_the_member"],
    ),
    Mutant(
        "cancelled-read-makes-a-link-deaf",
        "a link waits for ever for entries that nobody reads",
        [
            Edit(
                f"{LINK}._was_read",
                "self._is_reading = False",
                "self._is_reading = read.cancelled()",
            )
        ],
        [f"{LINKS}.test_a_read_that_is_cancelled_does_not_stop_the_link"],
    ),
    Mutant(
        "silent-host-hides-the-others",
        "of a name's hosts the first is dialled for ever, although it never answers",
        [Edit(HOSTS, "host in self._tried,", "False,")],
        [
            f"{ON_A_CLOCK}.test_a_silent_host_of_a_name_does_not_hide_the_others",
            f"{ON_A_CLOCK}.test_every_host_of_a_name_is_tried_in_turn",
        ],
    ),
    Mutant(
        "redial-asks-for-the-name",
        "a name server that is slow makes a leader that lives look dead (D17)",
        [Edit(HOSTS, "if again and self._reached is not None:", "if False:")],
        [f"{ON_A_CLOCK}.test_a_silent_host_of_a_name_does_not_hide_the_others"],
    ),
)

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
