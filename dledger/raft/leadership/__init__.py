"""Who leads, what a leader may confirm, and how it hands over.

barrier   read barriers: up to which index a reader must have applied
clocks    the group's time, and which clocks are off
election  when a member campaigns, and whom it answers: timers, pre-vote, votes
transfer  handing leadership over
"""
