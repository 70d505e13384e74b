"""Entries from the leader to its followers.

follower  a follower's half: append messages in, acknowledgements out
leader    the leader's half: what goes to whom, and what follows from the answers
progress  how far one follower is, and what is on its way to it
"""
