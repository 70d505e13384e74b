"""Segments, recovery, hard state, group commit."""
