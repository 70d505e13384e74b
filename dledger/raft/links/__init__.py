"""Links: the connections on which the members of a group exchange messages, each in order.

frame_stream   frames on a TCP connection: cutting, bounds, back-pressure
greeting       who dials whom, and the listener's answer
handshake      TLS on a connection that somebody dialled, before anything else of it is read
line_budget    how many log lines what others do may cost
peer_address   where a peer is: the hosts that its name stands for
peer_link      the dialling end of a link to another member
peer_listener  the accepting end of all links of a process
strangers      connections that are not accepted yet: how many, and which one makes room. Pure
"""
