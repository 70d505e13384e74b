"""Benchmarks of sending and reading.

append   Batched append
fetch    Reading a stored backlog by one consumer, every batch checked against its CRC
gaps     How long nothing is acknowledged while nothing is wrong
latency  End to end at a low rate
lone     A lone synchronous send: nothing else in flight
send     What users write: `submit` once per message, default batching
single   Single messages without client batching
"""
