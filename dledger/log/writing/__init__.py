"""Writing the log: what is in memory, and how a write round makes it durable.

planning     Planning a write round
write_round  A write round
"""
