"""The asyncio half of the client: channels, streams, tasks, timers.

administration  Calls of administration (asyncio), and protobuf turned into values
calls           Every unary method that this package calls: one table
cluster         A client's connection to a cluster
consumer        The asyncio shell of a consumer: streams, timer and tasks around `FetchCore`
creation        Creating a topic in two steps
fork            What a fork leaves of clients
futures         Futures of single messages that cost next to nothing
producer        The asyncio shell of a producer
queries         Questions about queues and offsets that consumers and administration share
runner          The difference between the asyncio classes and their synchronous twins
unclosed        Producers that nobody closed
wire            Channels to members and name servers, tries of unary calls, errors
"""
