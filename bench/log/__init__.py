"""Benchmarks of sending and reading.

append   batches appended by the native wire
fetch    one consumer reads a stored backlog and checks each batch's CRC
gaps     the longest time without an acknowledgement while nothing is wrong
latency  from send to receipt at a low rate
lone     a lone synchronous send: nothing else is in flight
metered  what a page of metrics costs a member
secure   with TLS, beside the same without: throughput and a lone send
send     the public client: one `submit` for each message, default batching
single   single messages without batching in the client
"""
