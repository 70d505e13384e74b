"""A producer without I/O.

actions       What a producer's core asks its driver to do: a closed list
batch         One batch of a producer, from its first record to its outcome
buffer        What a producer has taken and not settled: lanes by group, bytes, deadlines
context       What the parts of a producer's core need of the whole
core          A whole producer without I/O: what an asyncio shell, or a simulation, drives
delivery      Where the outcome of one message is found: its batch, and its position in it
epoch         A producer's epoch in one group: needed, asked for, granted
group_sender  One broker group as a producer sees it
lane          The batches of one queue in the order of their sequence
topics        The topics of a producer
"""
