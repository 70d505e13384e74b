"""Who takes part in a group, and whose word counts (D18).

formation   who may take part: the decision table of a member without data, pure
hellos      who is who: sessions, hellos, the record of lives and of what they promised
joining     what a member without data writes to become part of its group
quarantine  the way out of a quarantine
"""
