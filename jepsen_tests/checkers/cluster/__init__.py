"""Checkers of members, availability and clients.

availability  C17, C18: how long nobody could write, and whether all is well again in the end
clients       C21: every client gets on
deaths        Which members ended by themselves without a fault that may rightly end them
majority      When several troubles together left no majority that could go on
outcomes      C19, C20: enough succeeded, every error is a known one
replicas      C15, C16: members hold the same entries, and their terms
"""
