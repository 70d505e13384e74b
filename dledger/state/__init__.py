"""The replicated state: commands in, rows and results out."""
