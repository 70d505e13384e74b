"""Simulated consumers of consumer groups.

administrator  The product's administrator creates, changes, deletes consumer groups
held           What every member holds in the end, compared with the model
plan           What consumer groups share a topic, and who sends into it: the draw
sender         The product's producer sends records, some delayed, and recalls some
session        A hand-made consumer: it keeps a session, and gives queues back
shared         The groups that share a topic: their beginning, resets, pauses, their end
worker         The product's consumers, that poll or push, over their lives
"""
