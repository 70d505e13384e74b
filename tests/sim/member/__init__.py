"""Simulated members: the product's whole process on a simulated machine.

config        The configuration of a simulated member
convinced     A leader whose trials have found that waiting for callers pays
member        One simulated machine: its disk, its clock, its process
process       The process of a simulated member: the product's own
small_tables  Small blocks of the state's tables, and short waits, for one run of a minute
watching      Looking at a running group from outside
"""
