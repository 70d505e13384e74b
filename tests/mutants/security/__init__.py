"""Known bugs of who may do what.

tls_bugs  Known bugs of whom a process takes for whom, by its certificate
"""
