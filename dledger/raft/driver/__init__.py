"""What drives a group: the event loop and threads. With the links, all of Raft that does I/O.

deadline_timer   one timer of the loop that follows a moving deadline
host             one Raft group on an asyncio loop: carries out what the group wants
saving           when the derived state is saved
shared_barriers  read barriers of many callers at once
silence          since when there is no link to a peer
tasks            ending a task for certain
waiters          callers that wait until an entry is applied
worker           a thread of a member: jobs in, results back on the loop
"""
