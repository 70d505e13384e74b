"""A consistent copy of a running member's data, and a new cluster made of one.

manifest   What a snapshot is of, in a file that is written last
making     Writing a snapshot: the log by hard links, the saved state row by row
restoring  The data folders of a new cluster, made of a snapshot

When a snapshot is made, and for whom, is the broker's (`dledger_broker.snapshots`).
"""
