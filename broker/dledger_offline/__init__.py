"""Reading stopped members' data folders: no member is asked.

folder   The data folder of a stopped member, read only
reading  Reading topics from the data folders of stopped members
state    The LMDB of a stopped member, row by row, read only and without a lock file
"""
