"""What a simulated process runs on, instead of an operating system.

loop     The event loop of one process, on the virtual clock
"""
