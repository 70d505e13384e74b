"""What a member and a name server share so that others can watch them: metrics and health.

certificates  What certificates say and how long they hold: lines of the log, and a series
exposition    Makes the text of a scrape from what sources say now, without holding up the loop
health        gRPC's own health service: Check and Watch
histogram     A histogram of plain integers for the hot path. Pure
port          A small HTTP port: three pages, every wait and size bounded
series        What a series is, and the sheet on which sources write values. Pure
"""
