"""What the leader of a group puts into queues when its time has come (D23).

firing  The leader fires timers when they are due
"""
