"""Idempotent producers: epochs, sequences, and what the group remembers (D11, S116).

sweep  Sweeping out what producers still hold of deleted topics
table  Idempotent producers: epochs, sequences, and the memory of the last batches (D11, S116)
"""
