"""Timers: at this time, put these records into that queue (D7, D23, S40, S105, S106).

commands        The commands FireTimers and RecallTimer
schedule_table  Schedules: messages that are sent again and again
schedules       The commands SetSchedule and DeleteSchedule
table           The timers, in the order in which they fire
"""
