"""Child processes and threads of the harness.

child    child processes that end with the process that started them
launch   starts a process of the product whose disk and clock can be troubled
threads  waits for threads that a cancelled task left behind
"""
