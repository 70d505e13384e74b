"""One Raft group: it makes one log of what its members write, and elects who leads.

api           The boundary of a Raft group: settings, status, and the protocols around it
context       What the parts of one group share: settings, log, core, the outbox
durability    Which of a member's promises are on disk, and when a write round is due
fail_stop     A guard for calls that may raise: an error ends the group first
gate          Durable before visible: what waits for the disk, what is let in
group         One Raft group of one member, without I/O: inputs, outputs, fail-stop
status        What people, metrics and tests see of a group
wiring        Makes the parts of a group, and tells them what happens
commit/       From proposals to entries, and from committed entries to the state
driver/       What drives a group: the event loop and threads
engine/       PySyncObj 0.3.17 behind one module, and the journal that it writes to
leadership/   Who leads, what a leader may confirm, and how it hands over
links/        Connections between members: dialling, accepting, messages in order
membership/   Who takes part in a group: formation, hellos, quarantine (D18)
replication/  Entries from the leader to its followers
wire/         Messages between the members of a group
"""
