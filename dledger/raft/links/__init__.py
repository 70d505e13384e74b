"""Links: the connections on which the members of a group exchange messages, each in order.

peer_link      the dialling end of a link to another member
peer_listener  the accepting end of all links of a process
"""
