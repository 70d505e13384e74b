"""Trials of known bugs: does the harness see them?

catalogue  Which known bugs are tried, and what must find them
report     The table of the trials of known bugs, as Markdown: a part of `RESULTS.md`
runner     Tries known bugs and counts which are found
"""
