"""Commands that send and read messages.

bench     `dledger bench`: a quick load on a running cluster: throughput and latency in a table
consume   `dledger consume`: share a topic's messages with a group, and commit
lines     Lines of a source that may be slow: a thread waits for it, the event loop never does
message   `dledger message`: look messages up by id, by key, by place
schedule  `dledger schedule`: messages that the cluster sends again and again
send      `dledger send`: messages from arguments, a file or standard input, one per line
tail      `dledger tail`: print a topic's messages, from any place, and follow it
timer     `dledger timer`: list delayed messages, and take one back
"""
