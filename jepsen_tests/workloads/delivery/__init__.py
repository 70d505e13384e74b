"""Workloads of delivery: consumer groups, retries, dead letters, delayed messages.

child     consumers as processes of their own: they can be killed; their lines become rows
consume   W14: consumer groups of each order, whose consumers come, go, fail and are killed
consumer  the program of such a process
delays    W15: delayed messages and their recall
"""
