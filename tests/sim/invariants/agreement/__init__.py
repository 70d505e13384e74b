"""Invariants of Raft, the log and the state.

committed_on_majority    I6: an entry is on the disks of a majority when it is first seen
durable_before_visible   I5 and D4: what a message promises is on the sender's disk
election_safety          I1: at most one leader is elected in a term
leader_completeness      I3: a later leader holds every committed entry
log_matching             I2: two entries of equal index and term are equal, and so are all before
monotonic                Term and commit index never go back in one process
no_committed_truncation  I7: no entry at or below the commit index is removed from the tail
state_machine_safety     I4, state-machine safety
state_moves_together     I10: applied index and derived state move together
votes_of_majority        I1, from the other end: who leads was voted for by a majority
"""
