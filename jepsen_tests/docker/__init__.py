"""A docker engine and the containers of deploy/ on it.

engine  A docker engine to work with: the one that can be reached
stack   The containers of a compose file, under a project name and on ports of their own
traces  What a docker engine leaves on a machine, and taking it away again
"""
