"""Rules about what clients wrote and read.

contents   C6, C7: nothing is visible that was refused, fenced or never sent
exports    C25: an export holds each record once and in order; what it held is not gone
holds      C24: no trim passes a hold that lasts, and what is held can be read
lookups    C22: lookups find what was acknowledged before, and nothing else
loss       C1, C2, C3: nothing is lost that was acknowledged or read
offsets    C4, C5, C8: one value at an offset, one offset for a value, no holes
order      C9, C12: the log keeps the order of sends
reads      C10, C11: readers get each value once and in order, and it stays
registers  C14: offset commits and registers behave like one copy
times      C23: an offset by time is the first record stored at or after that time
"""
