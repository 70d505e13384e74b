"""Users of the whole cluster: the control group decides, the others take over.

authority   What the control group's leader does about users
following   A group takes the control group's list of users over
service     The calls of `dledger.v1.Users`
user_proto  Turns users from their replicated form into protobuf and back
"""
