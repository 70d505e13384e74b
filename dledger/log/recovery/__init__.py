"""Recovering the log after a start: what lies on the disk, and what is done with it.

checkpoint  The checkpoint: what a restart needs, so that it reads no old segment (I18)
recover     Recovery: from what lies on the disk to the log as it was
scan        Walking entry frames
table       What recovery does with what it finds, as three tables
"""
