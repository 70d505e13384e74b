"""A black-box chaos harness: workloads under faults, judged from a history of what clients saw.

`python -m jepsen_tests --help`; what it checks and how to use it: README.md in this folder.
"""
