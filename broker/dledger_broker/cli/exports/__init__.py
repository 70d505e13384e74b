"""`dledger export`.

export    `dledger export`: a topic's committed log as Parquet files, each record exactly once
output    What is shown of exports: how a run ended, what a folder holds, what was verified
progress  How far an export is: a bar on a terminal, JSON lines for programs
"""
