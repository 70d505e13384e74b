"""The replicated state: commands in, rows and results out.

counted_time  Counted time: how long the group has had leaders, by their own clocks (D11)
machine       The replicated state machine: committed entries in, rows and results out (D6, D8)
offsets       What consumer groups have consumed: the next offset of each queue (S99, I14)
queries       Questions to the state, answered at any time on the thread that applies
results       What apply answers: one value for each payload. No logic, no formats
saved         The saved state of a member that is stopped: its tables, opened for reading only
state         All tables of one group, wired to each other; what commands and queries share
tables        The tables of the state, and the one way to write them
topics        Topics: what exists, its layout, which of its queues this group holds
values        Values that commands carry, tables keep and queries return
commands/     The replicated commands
lookup/       Indexes of single records: by key and by message id (S52)
producers/    Idempotent producers: epochs, sequences, and what the group remembers (D11, S116)
queues/       Consume queues: appending to them, trimming them (S51, D6)
"""
