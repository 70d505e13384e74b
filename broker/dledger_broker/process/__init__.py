"""A member as a process: its groups, its end, logs, health.

group_runtime  One group of a member, opened: folder, log, state, Raft group, links
health         Whether one process answers, in a sentence: for the health checks of containers
log_trace      A group's trace events as log lines: every line with group, member and term
logs           Log lines of a member: as its configuration wants them, and never a flood
member         The member process: opens its groups, serves calls and links, ends in order
openness       How open a member is: its files for TLS, and what it warns of at its start
platform       What a member takes from its machine: clocks, chance, files, threads, the store
tasks          Background tasks that run as long as the process
upkeep         The upkeep of one group in a member: the disk, and the duties of a leader
"""
