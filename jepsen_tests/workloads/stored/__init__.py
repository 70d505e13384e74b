"""Workloads that ask for what is stored, or keep it: lookups, times, holds, exports.

doing    what these workloads share: acting at random places, trimming now and then
exports  W12: exports of a topic beside trims
finding  what these workloads share: records as lookups show them, store times of a queue
holds    W9: holds on queues beside trims
lookups  W10: lookups by offset, key and message id beside sends
times    W11: offsets by time
"""
