"""From proposals to entries, and from committed entries to the state.

applying   committed entries to the state machine in slices, and trimming of the head
cutting    when waiting proposals become entries of the leader's log (group commit)
gathering  how long small proposals wait for callers that are about to come back
proposals  how payloads become proposals and proposals entries, and the fate of each proposal
refusals   whether a proposal is taken now, and why not
trial      whether it pays to wait for callers: tried for a moment, then kept for a while
"""
