"""The replicated state: commands in, rows and results out.

counted_time  How long the group has had leaders, by their own clocks (D11)
events        What apply tells others: one event for each entry
format_level  The format level of the state, and the command that raises it (D6)
machine       The replicated state machine: applies entries, keeps applied index and digest (D6, D8)
offsets       Offsets that are stored under a name: the next of each queue (S99, I14)
queries       Questions to the state, answered at any time on the thread that applies
results       What apply answers: one value for each payload
saved         The saved state of a stopped member: its tables, opened for reading only
state         All tables of one group, wired to each other; what commands and queries share
tables        The prefix of each table's keys, and the one way to write rows
values        Values that commands carry, tables keep and queries return
commands/     What a command is, the list of all commands, their bytes
consumers/    Consumer groups: settings, members, who has which queue (D20)
lookup/       Indexes of single records: by key and by message id (S52)
producers/    Idempotent producers: epochs, sequences, and what the group remembers (D11, S116)
progress/     Progress of consumer groups in queues: claims, commits, failures (D21, D22)
queues/       Consume queues: appending, trimming, holds, garbage (S51, D6)
timers/       Timers: at this time, put these records into that queue (D7, D23)
topics/       Topics: what exists, its layout over groups, and who decides (D1, D14)
users/        Users and their policies: who may do what
"""
