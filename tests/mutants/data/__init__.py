"""Known bugs of the state, calls, exports and decoding.

call_bugs          Known bugs of calls whose outcome is unknown
column_bugs        Known bugs of decoding by columns
consumer_bugs      Known bugs of consumers in groups
coordination_bugs  Known bugs of consumer groups: as objects, and at their coordinator
export_bugs        Known bugs of exports: each breaks one promise of the protocol
forgetting_bugs    Known bugs of what is forgotten in steps
plan_bugs          Known bugs of plans for bulk reads
retention_bugs     Known bugs of retention: what is deleted too early
route_bugs         Known bugs of the name server: who is believed (D14, I17)
state_bugs         Known bugs of the state and of producers
timer_bugs         Known bugs of timers, references and pins (D7, D23)
unreadable_bugs    Known bugs around batches that nobody can decode
"""
