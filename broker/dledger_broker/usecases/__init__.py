"""What callers can ask of a member, whatever the API.

holds      Holds: placed and released, of one queue or of many in one call, and listed in pages
messaging  What clients can do with messages, as plain calls
progress   Progress of consumer groups: claims, releases, what is known of each queue, lag
queues     The queues that a request names: a queue that cannot be served is refused alone
"""
