"""Rules about members, availability and clients.

availability  C17, C18: how long nobody could write, and whether the group works in the end
clients       C21: each call ends, no client fails all the time, each queue opens again
deaths        for C18: which members ended without a fault that explains their end
majority      for C17: when several faults together left no majority
outcomes      C19, C20: known errors, enough successes, resources that are given back
replicas      C15, C16: equal members, and the rules of Raft
topics        C26: in the end all broker groups have the same topics
"""
