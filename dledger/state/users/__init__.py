"""Users and their policies: who may do what.

commands  The commands that change users, and their verdicts
queries   Questions about users
table     The user table: every user that a group knows, and the revision of the list
values    What a user is, and the limits of its fields
"""
