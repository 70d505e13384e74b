"""One group as the services see it, and what its leader does by itself.

commands     How a member proposes a command to its group
expiry       When a leader counts the time in which it led
forgetting   When a leader asks to free the rows of topics that were deleted long ago
group_view   One group as the services see it
long_poll    Who waits on which queue, woken by apply (S53, S83)
topic_watch  A state machine that tells when a topic changed
"""
