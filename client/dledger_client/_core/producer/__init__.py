"""A producer without I/O.

actions       What a producer's core asks its driver to do: a closed list
batch         One batch of a producer, from its first record to its outcome
batch_fate    What becomes of a batch when a try of it has ended
buffer        Batches that have no outcome yet: lanes by group, bytes, deadlines
context       What the parts of a producer's core need of the whole
core          A whole producer without I/O: what an asyncio shell, or a simulation, drives
epoch         A producer's epoch in one group: needed, asked for, granted
group_sender  One broker group as a producer sees it: its link, its epoch, its frames
lane          The batches of one queue in the order of their sequence
link          An append stream to one member of a group
parking       Messages whose topic is not known yet
topics        One topic of a producer: its lanes, and which queue a message goes to
"""
