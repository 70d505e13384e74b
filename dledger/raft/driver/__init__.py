"""What drives a group: the event loop, threads, links. The only part that does I/O.

host       Drives one Raft group on an asyncio loop: threads, timers, and nothing that decides
saving     When the derived state is saved
silence    Since when there is no link to a peer, for people who ask
tasks      Ending a task for certain
transport  Peer links
waiters    Callers of one loop that wait until an entry is applied, the lowest index first
worker     A thread of a member: jobs in, results back on the loop
"""
