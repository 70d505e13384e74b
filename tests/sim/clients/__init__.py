"""Simulated clients, and what they learned.

cast           Who the clients of a world are: producers, consumers, an administrator
consumer       Simulated consumers and an administrator
group/         Consumers of consumer groups
lookups        Lookups by key, message id, time and offset
oracle         What the clients did and learned
process        The process of a simulated client: its event loop, its clock, its end
producer       A simulated producer
real/          The product's own clients, whole
requests       What simulated clients ask of members: the native API's calls as plain values
routes         Whom the hand-made clients of one group follow
wire           What simulated clients ask of members, as real calls over the simulated network
"""
