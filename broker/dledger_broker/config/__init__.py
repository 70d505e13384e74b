"""The configuration of a member.

    checks  What is wrong with a configuration
    load    Reading a member's configuration
    model   The configuration of a member process: its values, their meaning and their limits

load   Reading a member's configuration
model  The configuration of a member process
"""
