"""Commands that keep a copy of a group's data, and make a new cluster of it.

restore    `dledger restore`: the data folders of a new cluster, made of a snapshot
snapshots  `dledger snapshot`: make, list and delete snapshots of running members
"""
