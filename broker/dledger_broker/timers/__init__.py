"""What the leader of a group puts into queues when its time has come (D23).

cron     When a cron expression is due, in a time zone
firing   The leader fires timers when they are due
sending  The leader sends what schedules are due
"""
