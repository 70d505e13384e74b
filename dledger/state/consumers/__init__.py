"""Consumer groups: what they are, who is in them, who has which queue (D20).

granting    Who has which queue: the rules of grants, and the commands Assign and GiveBack
groups      The commands that create, change, widen and delete consumer groups
membership  Who is in a consumer group: the commands Join and EndSessions
settings    The settings of a consumer group, and their limits
table       The rows of consumers and grants, and their place in memory
unused      Whether a consumer group is unused in this broker group
usage       When each consumer group was last used in this broker group
"""
