"""Known bugs of delivery: from stored to done.

expiry_bugs    Known bugs of the expiry of consumer groups
progress_bugs  Known bugs of progress in queues: fences, floors, resets, failures, dead letters
schedule_bugs  Known bugs of schedules
"""
