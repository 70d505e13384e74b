"""Simulated clients, and what they learned.

cast           Who the clients of a world are: producers, consumers, an administrator
consumer       Simulated consumers and an administrator
core_producer  The product's own producer core in the simulated world
lookups        Lookups by key, message id, time and offset
oracle         What the clients did and learned
producer       A simulated producer
requests       What simulated clients ask of members: the native API's calls as plain values
routes         The name servers: each client hears who leads, some time later
"""
