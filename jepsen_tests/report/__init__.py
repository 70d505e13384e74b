"""The page about a run: one self-contained HTML file.

charts  The pictures of a run: operations over time, latency, throughput
page    Makes the page of a history and its judgements
"""
