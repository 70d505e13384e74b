"""What the clients of one event loop share, and what stays each client's own.

connections  One connection per member and one watch of routes, for all clients that may share them
own_calls    The calls of one client over shared connections; they end with the client
"""
