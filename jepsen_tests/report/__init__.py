"""The page about a run: one self-contained HTML file."""
