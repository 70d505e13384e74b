"""Reading: fetch streams, lookups, plans, the log for comparison.

assignments  What a reader asks of a fetch stream: its queues, and how frames are to be sent
batches      Batches of the log, read and checked (I15)
explain      What became of a record, told from the log: one page of its story at a time
fetch        One fetch stream: messages of frames, long polling
frames       The next frame of an assignment, from memory or from disk
log_entries  The committed log as (index, term, crc) of every entry, for comparing members
lookups      Single records by key, message id and offset
plan_reads   Plans of reads: bounds and samples of many queues in one call
portions     Whose turn it is on a fetch stream; many frames are read in one job
story        What became of one record: commands of the log in, lines for people out. Pure
"""
