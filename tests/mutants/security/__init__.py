"""Known bugs of who may do what.

exposure_bugs  Known bugs of which processes start without TLS
login_bugs     Known bugs of logins, and of the gate before each call
tls_bugs       Known bugs of whom a process takes for whom, by its certificate
user_bugs      Known bugs of users in the replicated state, and of groups that follow them
"""
