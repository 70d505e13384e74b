"""Batches on their way into a group.

intake  Frames of batches in, items on their way out: admitted, checked, submitted in order
router  The way of batches into one group
stream  One append stream
unary   One unary append: a frame in, its answers out when all of them are known
"""
