"""Users and their policies: who may do what.

values   What a user is, and the limits of its fields
"""
