"""Faults of a simulated world.

clock_faults  Wall clocks that go wrong
damage        Damage to a stopped member's disk, as the nemesis does it
fault_sets    Which kinds of faults belong together
nemesis       The faults of a world: what is done to it, when, and how long
old_copy      An older copy of a member's data folder is put back, as from a backup
power         The power fails: now, or while a write is on its way to the disk
"""
