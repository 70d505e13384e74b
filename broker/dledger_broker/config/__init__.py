"""The configuration of a member.

checks  The relations between the values of a configuration, and how a problem is written
load    Reading a member's configuration
model   The configuration of a member process
"""
