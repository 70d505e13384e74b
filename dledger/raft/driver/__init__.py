"""What drives a group: the event loop, threads, links. The only part of Raft that does I/O.

deadline_timer   one timer of the loop that follows a moving deadline
host             one Raft group on an asyncio loop: carries out what the group wants
peer_link        the dialling end of a link to another member
peer_listener    the accepting end of all links of a process
saving           when the derived state is saved
shared_barriers  read barriers of many callers at once
silence          since when there is no link to a peer
tasks            ending a task for certain
waiters          callers that wait until an entry is applied
worker           a thread of a member: jobs in, results back on the loop
"""
