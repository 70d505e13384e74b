"""Simulated disks.

disk        A simulated disk
drive       A disk's behaviour in time, and the ways it breaks, on top of `SimFileSystem`
durable     What a disk would still hold after the worst power cut: read past every cache
inode       A file of the simulated disk
ram         Folders in memory for what only real files can hold
state_file  The saved state of one machine: LMDB's own file, as power cuts and bad disks leave it
torn_pages  What of LMDB's file is there after a power cut, page by page
"""
