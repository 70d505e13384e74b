"""Where processes listen, and how they prove who they are.

addresses   The rule for addresses, "host:port": what members are configured with
exposure    Which addresses only this machine reaches, and what a process with others must be told
open_files  How many files and connections a process may have open at once
ports       Free ports of this machine, which stay free while a member restarts
tls         The files of a process for TLS when they change, names in certificates, credentials
tls_files   What these files are called; it loads no library
tls_words   What errors of TLS mean, in words. Pure
"""
