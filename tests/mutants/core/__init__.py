"""Known bugs of Raft, the log and the disk.

clock_bugs       Known bugs of time
compaction_bugs  Known bugs of compaction
disk_bugs        Known bugs about disks that do not hold what they held
log_bugs         Known bugs of what is acknowledged before its sync
pace_bugs        Known bugs of when a leader speaks
raft_bugs        Known bugs of elections, replication, commit, reads and quarantine
refill_bugs      Known bugs of refills
repair_bugs      Known bugs of what mends a damaged entry
snapshot_bugs    Known bugs of snapshots
storage_bugs     Known bugs of the log, its recovery, the state and its saving
trust_bugs       Known bugs of whom a member believes, and when it is believed
"""
