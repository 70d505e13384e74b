"""Known bugs at the edges: what is read from outside, and what is written for people.

parser_bugs  Known bugs of parsers: what is not checked of bytes that somebody else may have made
"""
