"""The configuration of a member.

checks     The relations between the values of a configuration, and how a problem is written
load       Reading a member's configuration
model      The configuration of a member process
sections   The sections of a member's configuration, and the rules of single values
toml_file  A member's file as values: read, and bounded before anything looks at them
"""
