"""Who leads, what a leader may confirm, and how it hands over.

barrier    read barriers: up to which index a reader must have applied
clocks     the group's time, and which clocks are off
election   when a member campaigns, and whom it answers: timers, pre-vote, votes
last_seen  role, term and leader: who is told of a change, and when
transfer   handing leadership over
"""
