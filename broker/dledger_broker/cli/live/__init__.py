"""Commands that show a running cluster again and again.

refresh   Shows something anew every few seconds, until Ctrl-C
top       `dledger top`: members, rates of topics, lag of consumer groups
top_rows  The rows of `dledger top`: rates from two looks. Pure
"""
