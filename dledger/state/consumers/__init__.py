"""Consumer groups: what they are, who is in them, who has which queue (D20).

settings  The settings of a consumer group, and their limits
"""
