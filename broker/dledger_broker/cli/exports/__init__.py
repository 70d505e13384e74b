"""`dledger export`.

export    `dledger export` itself: its options, and one run or --watch
opening   What every command begins with: the folder, the cluster, which failures it expects
output    What is shown of exports: how a run ended, what a folder holds, what was verified
progress  How far an export is: a bar on a terminal, JSON lines for programs
runs      One run, or runs without end; and the engine that does the work
upkeep    `dledger export status`, `verify`, `compact`, `gc`
"""
