"""Timers: at this time, put these records into that queue (D7, D23, S40, S105, S106).

commands    The commands FireTimers and RecallTimer
table       The timers, in the order in which they fire
"""
