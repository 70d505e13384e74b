"""Known bugs of who may do what.

exposure_bugs  Known bugs of which processes start without TLS
tls_bugs       Known bugs of whom a process takes for whom, by its certificate
"""
