"""Known bugs at the edges: what is read from outside, and what is written for people.

flight_bugs  Known bugs of the flight recorder: a record that is lost, or grows without end
parser_bugs  Known bugs of parsers: what is not checked of bytes that somebody else may have made
"""
