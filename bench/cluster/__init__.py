"""Benchmarks of failover, restart, idling and the state.

compaction   what is left of many updates of few keys, and what compaction costs
failover     how long one synchronous producer waits when the leader is lost
idle         processor time and memory of a group that has nothing to do
lag          a follower that is stopped (SIGSTOP) for a minute
refill       a member that lost its disk after a trim: how fast a peer fills it
restart      the start after kill -9 under load, and with a large log
snapshot     what those feel who send while a snapshot is made
state_store  which way to keep the state crash-safe costs the loop least (D16)
steady       full load on all processors: nobody may start a needless election
"""
