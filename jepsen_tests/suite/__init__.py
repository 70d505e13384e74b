"""Suites of runs: plans, running them, what they covered, results.

coverage  Which faults the runs of a suite did, backend by backend
plan      Suites: the closed lists of runs, and which faults each run of which round is to do
results   What many runs did and found, in one page of Markdown: `RESULTS.md` is made of it
runs      Runs a suite
"""
