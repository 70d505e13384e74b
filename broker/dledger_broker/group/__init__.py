"""One group as the services see it, and what its leader does by itself.

commands     How a member proposes a command to its group
duties       What the leader of a group does by itself: the closed list of its duties
duty         What a duty is
expiry       A duty: the leader counts time, and forgets producers that were silent
forgetting   A duty: the leader asks to free the rows of topics that were deleted long ago
group_view   One group as the services see it: its host, state and log
leases       Which leases of ordered consumer groups are over, by this member's monotonic clock
long_poll    Long polls: which reader waits on which queue, woken by apply (S53, S83)
queue_sizes  How many bytes a queue holds, and where it is within a bound
retention    A duty: the leader asks to delete what the retention of topics lets go
topic_watch  Which topics changed: what routes and registrations wait for
widening     A duty: the leader gives consumer groups a queue in each new broker group
"""
