"""Invariants of Raft, the log and the state.

committed_on_majority    I6: an entry is on the disks of a majority when it is first seen
durable_before_visible   I5 and D4
election_safety          I1, election safety
leader_completeness      I3, leader completeness
log_matching             I2, log matching
monotonic                Term and commit index never go back in one process
no_committed_truncation  I7: an entry at or below the commit index is never removed from the
state_machine_safety     I4, state-machine safety
state_moves_together     I10: applied index and derived state move together
votes_of_majority        I1, from the other end
"""
