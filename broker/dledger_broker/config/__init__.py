"""The configuration of a member.

checks  What is wrong with a configuration: how it is told, and the relations between its values
load    Reading a member's configuration
model   The configuration of a member process
"""
