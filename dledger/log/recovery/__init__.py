"""Recovering the log after a start.

recover  finds what lies on the disk, and does what the tables say
table    what each finding means, as three tables
"""
