"""Messages between the members of a group.

message_codec  Messages between the members of a group, and their binary form `DLP1`
messages       The closed list of messages between the members of a group
"""
