"""Structured events of a group: what an operator greps for and what the simulation checks.

Owns: the `Trace` protocol. Does not own where events go: the member server writes them as log lines
bound to group, member and term. An event's fields are plain numbers and strings. The raft package
emits, with the fields in brackets:

role [role term leader]          vote [candidate term]           campaign [term why]
commit [index term]              truncated [first last term]     head_trimmed [segments]
formed [group_id step]           quarantined [incarnation]       quarantine_ended [index lifted]
incarnation_recorded [peer incarnation]                          transfer [target done reason]
clock_off [offset_ms]            clock_agrees [offset_ms]        clock_kept [offset_ms]
clock_jumped [jump_ms waits]     clock_followed [jump_ms]
leader_lost [peer why]           paused [gap_seconds]            disk_hangs [seconds]
forgotten [peer what]            life_renewed [told_by incarnation]
acknowledgement_lost [peer index held]                           round_slow [seconds synced what]
refused [sender reason]          dropped [sender message reason] stopped [reason]
"""

from typing import Final, Protocol

FREQUENT: Final = frozenset({"append_request_dropped", "commit", "dropped", "round_slow"})
"""Events of every entry, or of every message of a peer: for debugging only."""


class Trace(Protocol):
    """Takes events; must not raise and must not block."""

    def event(self, name: str, **fields: object) -> None:
        """Record that `name` happened, with its fields."""
        ...
