"""Consume queues: appending to them, trimming them (S51, D6).

append  Appending committed batches to their queues
table   Consume queues
trim    Trimming queues, holds that delay it, and the removal of rows that nobody sees any more
"""
