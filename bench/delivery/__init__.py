"""Benchmarks of delivery: from stored to done.

delay      delayed messages: how many fire in a second, and how late they come
push       the push consumer beside plain reading, from a backlog and at a low rate
rebalance  queues move when a consumer joins its group, and when one dies
timers     many timers wait: memory, and the start of a group that has them
"""
