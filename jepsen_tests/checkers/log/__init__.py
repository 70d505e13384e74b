"""Rules about what clients wrote and read.

contents   C6, C7: nothing is visible that was refused, fenced or never sent
loss       C1, C2, C3: nothing is lost that was acknowledged or read
offsets    C4, C5, C8: one value at an offset, one offset for a value, no holes
order      C9, C12: the log keeps the order of sends
reads      C10, C11: readers get each value once and in order, and it stays
registers  C14: offset commits and registers behave like one copy
"""
