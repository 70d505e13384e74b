"""A whole cluster on this machine.

child    Runs a module as `__main__` in a process that gets SIGTERM when its parent ends
cluster  A whole cluster on this machine
"""
