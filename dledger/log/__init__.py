"""The one log of a group: segments, recovery, write rounds, hard state, the data folder.

atomic_file  Small files that are replaced as a whole, and their common frame
checkpoint   The checkpoint file: what a restart needs, so that it reads no old segment
commit_log   The public face of the log: append, cut, take a write round, read
errors       What can be wrong with a data folder or a log, as exceptions
folder       The data folder of one member: its lock, its identity, its paths
hard_state   The hard state file: term, vote, incarnations, quarantine
identity     The identity file: cluster, group, member and life of a data folder
image        Which files hold the log up to an entry: what a copy of it consists of
settings     The sizes that configuration gives a log
space        Disk space: a kept reserve, and the mark below which writes are refused
memory/      The log in memory: chain, segments, newest entries, what is written and synced
reading/     Reading old log bytes from any thread, while the loop appends, cuts and trims
recovery/    Recovering the log after a start
writing/     Making the log durable, one write round at a time
"""
