"""Known bugs put into real members: does the harness find them?

catalogue  the closed list of bugs, and what must find each
report     the table of the trials as Markdown, a part of `RESULTS.md`
runner     runs each bug beside the same run without the bug
"""
