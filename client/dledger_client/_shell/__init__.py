"""The asyncio half of the client: channels, streams, tasks, timers.

answers   Answers of members as values that users see
calls     Every unary method that the client calls: one table
cluster   A client's view of a cluster: its routes, calls with their tries
consumer  A consumer's engine: fetch streams around `ConsumerCore`
driver    What both engines do around their cores: actions, timer, tasks, the end
fork      What a fork leaves of clients
futures   Futures of single messages: waiting for an outcome, callbacks
producer  A producer's engine: append streams around `ProducerCore`, messages from other threads
queries   Calls about topics, queues, offsets and keys that several client objects share
runner    How an awaitable is run: awaited, or on the background loop of the blocking classes
unclosed  Producers that nobody closed
wire      Channels to members and name servers, single tries of calls, errors
group/    Consumers in groups: sessions, claims, listeners
sharing/  Connections and the watch of routes that clients of one loop share
"""
