"""Benchmarks of failover, restart, idling and the state.

failover     Losing the leader under one synchronous producer
idle         What a group takes when it has nothing to do
lag          A follower that is stopped (SIGSTOP) for a minute
restart      Starting again: after kill -9 under load, and with a large log
state_store  Which way of keeping the state crash-safe costs the loop least (D16)
steady       Full load on all processors: no election that is not needed
"""
