"""Simulated disks.

disk     A simulated disk
drive    A disk's behaviour in time, and the ways it breaks, on top of `SimFileSystem`
durable  What a disk would still hold after the worst power cut: read past every cache
inode    A file of the simulated disk
"""
