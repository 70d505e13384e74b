"""Reads the data folders of stopped members, without a running member.

folder   The data folder of a stopped member, read only: its small files, its segments
reading  Reads topics from the data folders of stopped members: plans and ranges
state    The LMDB of a stopped member, row by row, read only and without a lock file
"""
