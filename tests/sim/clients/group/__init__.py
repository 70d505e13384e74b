"""Simulated consumers of consumer groups.

session  A hand-made consumer: it keeps a session, and gives queues back
"""
