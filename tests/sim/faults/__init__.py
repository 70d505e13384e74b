"""Faults of a simulated world: one row in the list `FAULTS` of a module for each fault.

clocks     wall clocks that go wrong: at one member, a majority or all
damage     damage to a stopped member's disk: what was synced changes, or fails
disks      disks that are slow, hang, fail, are full or lost
fault      what a fault is: its name, what it does, where it fits
links      links that are cut, hold or lose what is sent
nemesis    draws which fault comes next, when, and whom it strikes
old_copy   an older copy of a member's data folder is put back, as from a backup
power      the power fails: now, or while a write is on its way to the disk
processes  processes that end, stand still or apply slowly; leadership that moves
"""
