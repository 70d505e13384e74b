"""Batches on their way into a group.

intake      Frames of batches come in; their batches are admitted, checked, submitted in order
router      The way of batches into one group: proposed here, forwarded once, or parked
stream      One append stream: frames in, answers out, in order
unary       One unary append: a frame comes in, its answers go out when all are known
write_rule  Whether a member proposes a batch: what apply would say, and the rules of topic types
"""
