"""What callers can ask of a member, whatever the API.

holds      The holds of a group, listed in pages
messaging  What clients can do with messages, as plain calls
"""
