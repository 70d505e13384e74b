"""Writing the log: what is in memory, and how a write round makes it durable.

log_state    What the log holds, as the loop's thread sees it
planning     Planning a write round
tail         The newest entries, in memory
write_round  A write round
"""
