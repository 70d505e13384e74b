"""Reading: fetch streams, lookups, plans, the log for comparison.

fetch        One fetch stream
log_entries  The committed log as (index, term, crc) of every entry, for comparing members
lookups      Single records by key, message id and offset
plan_reads   What is asked of many queues in one call: bounds and samples to plan by, holds
"""
