"""Processes, ports and threads of the harness.

child    Child processes: runs of the harness, and tools, that end with whoever started them
launch   Starts an ordinary process of the product whose disk and clock can be troubled
ports    Ports of this machine that members listen on, and will again after a restart
threads  Threads that work for an event loop: cancelling who waits for one does not end it
"""
