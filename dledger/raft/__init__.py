"""One Raft group: it makes one log of what its members write, and elects who leads.

api           The boundary of a Raft group: what drives it, what it drives, what goes in and out
context       What the parts of one group share: its settings, its log, the core, the way out
durability    What of a member's promises is on disk: hard state versions, write rounds
fail_stop     Around whatever may raise: an error ends the group before anybody else sees it
gate          The gate between the core and the wire: durable before visible
group         One Raft group of one member, without I/O: what goes in, what comes out
log_port      What a group needs from the log
status        What people, metrics and tests see of a group
wiring        The parts of one group, wired together
commit/       From proposals to entries, and from committed entries to the state
driver/       What drives a group: the event loop, threads, links. The only part that does I/O
engine/       PySyncObj 0.3.17 behind one module, and the journal that it writes to
leadership/   Who leads, what a leader may confirm, and how it hands over
membership/   Who takes part in a group: formation, hellos, quarantine (D18)
replication/  Entries from the leader to its followers
wire/         Messages between the members of a group
"""
