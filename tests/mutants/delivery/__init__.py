"""Known bugs of delivery: from stored to done.

progress_bugs  Known bugs of progress in queues: fences, floors, resets, failures, dead letters
schedule_bugs  Known bugs of schedules
"""
