"""What callers can ask of a member, whatever the API.

dead_letters  Dead letters: listed in pages, sent to their group again, dropped
explain       What became of a record, by its place or its message id
holds         Holds: placed and released, of one queue or of many in one call, and listed in pages
messaging     What clients can do with messages, as plain calls
progress      Progress of consumer groups: claims, releases, failures, lag
queues        The queues that a request names: a queue that cannot be served is refused alone
"""
