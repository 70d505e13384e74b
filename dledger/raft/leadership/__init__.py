"""Who leads, what a leader may confirm, and how it hands over.

barrier   Read barriers
clocks    What time a group has
election  When a member campaigns, and whom it answers: timers, pre-vote, votes, a lost leader
transfer  Leadership transfer: drain, wait for the target, hand over, or go on as before
"""
