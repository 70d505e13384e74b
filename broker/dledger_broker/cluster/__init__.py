"""The rest of the cluster: other groups, name servers, topics.

channels         The gRPC channels to other members and to name servers
consumer_groups  Consumer groups of the whole cluster: what the control group's leader does
forward          The append streams that carry batches from a member to the leader
group_expiry     Deletes consumer groups that nobody used for long
registration     A member's place at the name servers
telling          The control group's leader tells the other groups that it has decided something
topic_authority  Topics of the whole cluster
topic_follower   A group takes over what the control group decides: users, then topics (D1)
topic_pages      Lists of topics in pages
view             What this process knows of the other groups of its cluster
"""
