"""Suites of runs: plans, running them, what they covered, results.

coverage  Which faults the runs of a suite did, backend by backend
suites    Suites: their runs, and which faults each run does
results   What many runs did and found, in one page of Markdown: `RESULTS.md` is made of it
runner    Runs a suite: several runs at once, repeats, signals
"""
