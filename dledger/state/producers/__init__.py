"""Idempotent producers: epochs, sequences, and what the group remembers (D11, S116).

expiry        ExpireProducers: counting time, and forgetting the producers that stopped writing
registration  RegisterProducer: which life of a producer holds which epoch
table         The producer tables, and the verdicts on repeats: a batch's epoch and sequence
"""
