"""Snapshots of a running member, beside its data.

keeping  Which snapshots there are: making, listing and deleting them, one at a time
"""
