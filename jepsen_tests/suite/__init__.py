"""Suites of runs: their lists, their runner, their results.

coverage  which faults the runs of a suite did, on each backend
results   judges many runs again and sums them up as Markdown, for `RESULTS.md`
runner    runs a suite: several runs at once, repeats, signals
suites    the closed lists of runs, and which faults each run does
"""
