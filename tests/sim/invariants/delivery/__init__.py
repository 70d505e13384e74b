"""Invariants of what clients send and read.

grants              I19: a queue of a consumer group has at most one holder
group_history       D20: what a consumer group's name may be; none expires while it is used
handling            I19 to I22: what listeners get, in which order, in true time
offsets_never_back  I14: a stored group offset grows, unless it is reset
producer_verdicts   D11: verdicts on producers' batches follow from the log alone
progress            I19 to I22: claims, commits and failures of consumer groups
queue_contents      I8 and I9: contiguous offsets, no batch missing or stored twice
records             I20 to I24: what consumer groups share, as the log says
right_stamps        D8: while most clocks are right, so is the group's time
schedules           I23: each time of a schedule gives one message at most, never early
topic_history       D14: what a topic's name may be after everything that was answered
trims_and_holds     S52: a queue's minimum moves by trims alone, and never beyond a hold
"""
