"""Where processes listen, and how they prove who they are.

addresses  The rule for addresses, "host:port": what members are configured with
ports      Free ports of this machine, which stay free while a member restarts
tls        The files of a process for TLS, the names in certificates, what libraries need
"""
