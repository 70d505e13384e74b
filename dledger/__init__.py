"""dledger: a Raft-replicated message log. No server, no command line, no routes live here.

clock      Time as an argument: the core asks a `Clock`, never the machine (D8)
files      The file system as the log sees it: a Protocol, and the real one
trace      Structured events of a group, for log lines and for the simulation's checks
types      The numbers and values that every layer passes on, each with a type of its own
log/       The one log of a group: segments, recovery, write rounds, hard state, the data folder
raft/      One Raft group: replication, elections, membership, and what drives a group
refill/    Log and state from a peer, for a member that replication cannot fill any more
repair/    Damage in the log of a member: found by reading, mended entry by entry
snapshot/  A consistent copy of a running member's data, and a new cluster made of it
state/     The replicated state: commands in, rows and results out
store/     The ordered key-value store behind the state: in memory, over LMDB on disk
"""

from dledger_proto import __version__

__all__ = ["__version__"]
