"""From proposals to entries, and from committed entries to the state.

applying   Committed entries to the state machine, in slices
gathering  When what waits becomes an entry: group commit that waits for those who come back
proposals  Group commit and the fate of every proposal
"""
