"""The leader carries old records forward, so that one of them does not keep a whole log (D7).

carrying  The loop: when a pass begins, what each of its commands brings
worth     Whether a pass is worth its copies
"""
