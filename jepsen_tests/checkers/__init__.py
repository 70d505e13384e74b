"""The checkers C1-C20: pure functions from a history to a judgement."""
