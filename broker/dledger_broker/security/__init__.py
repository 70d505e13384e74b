"""Who may do what.

access     Who calls, and what only members of the cluster may call
authority  Makes the keys and certificates of a cluster, and the folders of its processes
"""
