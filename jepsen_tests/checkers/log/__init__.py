"""Checkers of what clients wrote and read.

contents   C6, C7: nothing is visible that was refused or fenced, never sent
loss       C1, C2, C3: what was acknowledged, or once read, and is not there
offsets    C4, C5, C8: one value at one offset, one offset for one value, and no holes between
order      C9, C12: the order of the log is the order in which sends followed each other
reads      C10, C11: readers are given every value once and in order, and what they saw stays
registers  C14: offset commits and registers behave as if there were one copy of each
"""
