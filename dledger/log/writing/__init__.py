"""Making the log durable, one write round at a time.

rounds       what a round writes, which one is in flight, and what holds once it is over
write_round  the steps of a round, and the disk that they run against
"""
