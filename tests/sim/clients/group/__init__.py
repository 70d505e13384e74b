"""Simulated consumers of consumer groups.

administrator  The product's administrator creates, changes, deletes consumer groups
session        A hand-made consumer: it keeps a session, and gives queues back
"""
