"""Trials of known bugs: does the harness see them?

strength         Which known bugs are tried, and what must find them
strength_report  The table of the trials of known bugs, as Markdown: a part of `RESULTS.md`
trials           Tries known bugs and counts which are found
"""
