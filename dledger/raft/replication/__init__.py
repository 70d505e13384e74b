"""Entries from the leader to its followers.

follower  The follower's half of replication: append messages in, acknowledgements out
leader    The leader's half of replication: what goes to whom, and what comes of the answers
progress  How far one follower is, as its leader knows, and what is on its way to it
"""
