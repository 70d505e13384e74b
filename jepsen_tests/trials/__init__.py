"""Trials of known bugs: does the harness see them?

strength         Proof of strength
strength_report  The table of the trials of known bugs, as Markdown: a part of `RESULTS.md`
trials           Tries known bugs
"""
