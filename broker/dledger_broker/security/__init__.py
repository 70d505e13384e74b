"""Who may do what.

access     Who calls, and what only members of the cluster may call
audit      Audit lines: who wanted what, from where, and the outcome
authority  Makes the keys and certificates of a cluster, and the folders of its processes
deciding   What follows from a user's policies: a yes or a no
gate       The gate before every call: who calls, and whether the caller may
logins     Who proves a secret on which connection, and until when that holds
rules      What each call needs: the words in which the table of calls says it
service    The calls of a login
"""
