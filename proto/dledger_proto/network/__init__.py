"""Where processes listen.

addresses  The rule for addresses, "host:port": what members are configured with
ports      Free ports of this machine, which stay free while a member restarts
"""
