"""Recovering the log after a start: what lies on the disk, and what is done with it.

recover     Recovery: from what lies on the disk to the log as it was
table       What recovery does with what it finds, as three tables
"""
