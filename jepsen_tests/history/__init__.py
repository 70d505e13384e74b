"""The history of a run: its events, and what each line may hold.

events      What happened in a run, one JSON line for each event
row_schema  What each line of a history may hold
"""
