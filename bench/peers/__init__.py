"""dledger beside other systems, on the same work and on this machine: `python -m bench.peers`.

Each system runs with three nodes on loopback. The systems take turns, one cluster at a time.

figures     which figures there are, how much work each takes, how runs become one figure
installing  gets what peers consist of into a folder outside the repository
nodes       processes of one peer's nodes: start, kill, restart, end
peer        what a system must do to be compared: the protocol, and its senders
measuring   the figures, measured by what every system can do
ours        dledger, through its public clients
etcd        etcd, one key for each message
jetstream   NATS JetStream, file storage, fsync always
kafka       Apache Kafka, as it is and with a flush for each append
rabbitmq    RabbitMQ, quorum queues
rounds      rounds of all systems in turn, and what was left out
page        the table of ratios and the page with it
"""
