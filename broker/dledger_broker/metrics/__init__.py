"""What a member tells those who watch it, from its live state at the moment of a scrape.

catalogue     Every series of a member, with its labels and its meaning
consumers     What consumer groups have to do: lag, dead letters, pauses; of a leader alone
cut           Which topics and groups get series of their own: a bound, and how many are left out
meters        What the hot path counts, in plain integers
of_group      One broker group of the process: role, log, peers, disk, repair, timers
of_process    The process: admission, calls, refusals
of_topics     Messages and bytes in and out, by topic
readiness     Whether the member serves, in a sentence when it does not
watching      All of it for one member: its HTTP port and its health service
"""
