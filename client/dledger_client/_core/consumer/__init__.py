"""A consumer without I/O.

core   What a consumer reads: positions, streams to members, buffered batches
state  Values of a consumer's core
"""
