"""Invariants of what clients send and read.

fetched             Outputs are announced
offsets_never_back  I14 in the state
producer_verdicts   D11 from the log alone
queue_contents      I8 and I9 on the log
right_stamps        D8: while most clocks are right, so is the group's time, whoever leads
trims_and_holds     S52's other side
"""
