"""A docker engine, and the containers of deploy/ on it.

engine  the docker engine that answers, or one that the harness starts for the run
stack   the containers of a compose file, under a project name and ports of their own
traces  finds what an engine leaves on a machine, and removes it
"""
