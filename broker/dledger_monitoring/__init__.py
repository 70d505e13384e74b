"""What a member and a name server share so that others can watch them: metrics and health.

exposition  Makes the text of a scrape from what sources say now, without standing in the loop's way
health      gRPC's own health service: Check and Watch
histogram   A histogram of plain integers for the hot path. Pure
port        A small HTTP port: three pages, every wait and size bounded
series      What a series is, and the sheet on which sources write values. Pure
"""
