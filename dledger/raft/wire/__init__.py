"""What travels between the members of a group.

link_frame     frames of a peer link, `DLK1`: each carries every message that waits
loading        the entries of an append request, read from the log just before it is sent
message_codec  the bytes of each message, `DLP1`
messages       the closed list of messages, as values
"""
