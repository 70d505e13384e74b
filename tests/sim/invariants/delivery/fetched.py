"""A driver that drains only when `has_outputs` says so misses no output."""

from dledger.raft.api import Outputs
from dledger.raft.group import RaftGroup
from tests.sim.invariants.violation import Property, Violation


def outputs_of(group: RaftGroup, now: float, member: str) -> Outputs:
    """Return what the group wants; Violation when `has_outputs` did not announce it."""
    is_announced = group.has_outputs or group.next_deadline() <= now
    outputs = group.outputs()
    if not is_announced and (outputs.messages or outputs.write or outputs.apply_ready):
        raise Violation(Property.FETCHED, f"{member}: outputs that were not announced")
    return outputs
