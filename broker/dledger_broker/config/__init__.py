"""The configuration of a member.

load   Reading a member's configuration
model  The configuration of a member process
"""
