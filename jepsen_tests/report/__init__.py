"""The page about a run: one self-contained HTML file.

charts  the pictures: operations over time, latency, throughput
page    makes the page from a history and its judgements
"""
