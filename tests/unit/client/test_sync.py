"""The synchronous twins: blocking calls from several threads on the shared background loop."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from dledger_client import (
    Admin,
    BufferFull,
    ClientClosed,
    ConnectionConfig,
    Consumer,
    ConsumerConfig,
    InvalidRequest,
    NothingFound,
    NotStored,
    Producer,
    ProducerConfig,
    SendFuture,
    StartAt,
    TopicNotFound,
    UnknownOutcome,
)
from dledger_proto.errors import Code
from dledger_proto.limits import KIB
from tests.unit.client.fake_member import FakeCluster


class ThreadedCluster:
    """A FakeCluster on a loop of its own, for callers that block."""

    def __init__(self, groups: dict[str, int]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.cluster = FakeCluster(groups)
        asyncio.run_coroutine_threadsafe(self.cluster.__aenter__(), self.loop).result(10)

    def close(self) -> None:
        done = asyncio.run_coroutine_threadsafe(self.cluster.__aexit__(None, None, None), self.loop)
        done.result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def hold_answers(self, *, hold: bool) -> None:
        event = self.cluster.leader().hold_answers
        self.loop.call_soon_threadsafe(event.clear if hold else event.set)


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    cluster = ThreadedCluster({"a": 2})
    yield cluster
    cluster.close()


def test_sends_from_many_threads_keep_each_threads_order(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    with Producer(cluster.bootstrap) as producer:

        def run(thread: int) -> None:
            for i in range(200):
                if i % 10 == 0:
                    producer.send("t", b"%d:%d" % (thread, i), queue=0)
                else:
                    producer.send_async("t", b"%d:%d" % (thread, i), queue=0)

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        log = cluster.log("t", 0)
        assert len(log) == len(set(log)) == 1_600
        for number in range(8):
            own = [body for body in log if body.startswith(b"%d:" % number)]
            assert own == [b"%d:%d" % (number, i) for i in range(200)]


def test_a_message_before_the_start_is_refused_and_never_sent(threaded: ThreadedCluster) -> None:
    """It left a mark that a flush was due, so after the start nothing was sent; and then it was."""
    producer = Producer(threaded.cluster.bootstrap)
    with pytest.raises(ClientClosed, match="the producer is not started"):
        producer.send_async("t", b"early", queue=0)
    with producer:
        assert producer.send_async("t", b"first", queue=0).result(10).offset == 0
    assert threaded.cluster.log("t", 0) == [b"first"]


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_a_closed_client_does_not_start(
    threaded: ThreadedCluster, kind: type[Producer | Consumer | Admin]
) -> None:
    client = kind(threaded.cluster.bootstrap)
    client.start()
    client.close()
    with pytest.raises(ClientClosed, match="is closed"):
        client.start()


def test_send_futures(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    with Producer(cluster.bootstrap) as producer:
        assert producer.send("t", b"0", queue=0).offset == 0
        threaded.hold_answers(hold=True)
        called: Counter[str] = Counter()
        future = producer.send_async(
            "t", b"1", queue=0, on_done=lambda _: called.update([threading.current_thread().name])
        )
        with pytest.raises(TimeoutError):
            future.result(timeout=0.02)
        assert not future.done()
        with pytest.raises(RuntimeError, match="no outcome yet"):
            future.exception()
        threaded.hold_answers(hold=False)
        assert future.result().offset == 1
        assert future.wait().offset == 1
        assert future.exception() is None
        late = threading.Event()
        future.add_done_callback(lambda _: late.set())
        assert late.is_set(), "called at once on a future that is done"
        assert called == {"dledger client": 1}
        results = producer.send_many("t", [b"2", b"3"], queue=0)
        assert [result.offset for result in results] == [2, 3]
        producer.send_one_way("t", b"4", queue=0)


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_no_callback_ends_the_loop_of_all_clients(
    end: type[BaseException], threaded: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises is told; other sends of its batch get their outcome, and so do later ones."""

    def give_up(_: SendFuture) -> None:
        raise end

    with Producer(threaded.cluster.bootstrap) as producer:
        producer.send("t", b"0", queue=0)
        threaded.hold_answers(hold=True)
        futures = [producer.send_async("t", b"x", queue=0, on_done=give_up) for _ in range(3)]
        threaded.hold_answers(hold=False)
        assert [future.result(10).offset for future in futures] == [1, 2, 3]
        assert producer.send("t", b"x", queue=0).offset == 4
    assert caplog.text.count("a send callback failed") == 3


def test_a_full_buffer_blocks_and_a_callback_is_refused(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    config = ProducerConfig(buffer_bytes=8 * 1_024 * KIB)
    with Producer(cluster.bootstrap, config) as producer:
        producer.send("t", b"0")
        threaded.hold_answers(hold=True)
        message = bytes(1_024 * KIB)
        refused: list[BaseException] = []

        def send_more(_future: SendFuture) -> None:
            for action in (
                lambda: [producer.send_async("t", message) for _ in range(8)],
                producer.wait_for_room,
            ):
                try:
                    action()
                except (BufferFull, RuntimeError) as error:
                    refused.append(error)

        futures = [producer.send_async("t", message) for _ in range(7)]
        with pytest.raises(BufferFull):
            producer.send_async("t", message, timeout_ms=30)
        futures[0].add_done_callback(send_more)
        release = threading.Timer(0.05, threaded.hold_answers, kwargs={"hold": False})
        release.start()
        producer.send("t", message)
        for future in futures:
            future.result()
        producer.flush()
        assert [type(error) for error in refused] == [BufferFull, RuntimeError]


def test_errors_and_the_end(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    with Producer(cluster.bootstrap, ProducerConfig(create_topics=False)) as producer:
        with pytest.raises(TopicNotFound):
            producer.send("nothing", b"x")
        cluster.leader().script.append(Code.MESSAGE_ILLEGAL)
        with pytest.raises(NotStored):
            producer.send("t", b"x")
        status = producer.status()
        assert status.batches == 0
    assert producer.status().is_closed
    with pytest.raises(ClientClosed):
        producer.send_async("t", b"x")
    producer.close()


def test_a_consumer(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    config = ConsumerConfig(group="g", start_at=StartAt.FIRST, wait_ms=50)
    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap, config) as consumer:
        for i in range(50):
            producer.send_async("t", b"%d" % i, queue=0)
        producer.flush()
        consumer.assign([("t", 0)])
        bodies: list[bytes] = []
        while len(bodies) < 20:
            bodies += [record.body for record in consumer.poll(20 - len(bodies))]
        consumer.commit()
        for record in consumer:
            bodies.append(record.body)
            if len(bodies) == 50:
                break
        assert bodies == [b"%d" % i for i in range(50)]
        assert consumer.committed("t") == {0: 20}
        assert consumer.offsets("t")[0].maximum == 50
        consumer.pause("t")
        consumer.resume("t")
        consumer.seek("t", 0, 49)
        assert [record.body for record in consumer.poll(5)] == [b"49"]


def test_administration(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    with Admin(cluster.bootstrap) as admin:
        topic = admin.create_topic("new", queues_per_group=3)
        assert topic.write_queues == 3
        assert admin.describe_topic("new").parts == (("a", 3),)
        group = admin.groups()[0]
        assert group.leader == "a0"
        status = admin.status(group.leader_address)
        assert (status.member, status.role, status.address) == (
            "a0",
            "leader",
            group.leader_address,
        )
        assert set(admin.statuses()) == {("a", "a0"), ("a", "a1")}
        assert admin.transfer_leadership("a", "a1")[0] == "a1"
        assert admin.queue_offsets("new").keys() == {0, 1, 2}
        admin.commit_offsets("g", {("new", 1): 5})
        assert admin.read_offsets("g", "new") == {1: 5}
        assert issubclass(NothingFound, NotStored)


def test_a_transfer_returns_once_the_new_leader_is_known(threaded: ThreadedCluster) -> None:
    cluster = threaded.cluster
    with Admin(cluster.bootstrap) as admin:
        before = admin.groups()[0].term
        # The old leader does not know who won: its answer names nobody.
        assert admin.transfer_leadership("a") == ("a1", before + 1)
    cluster.leader().only_lets_go = True
    patience = ConnectionConfig(call_timeout_ms=300)
    with Admin(cluster.bootstrap, patience) as admin:
        with pytest.raises(UnknownOutcome) as raised:
            admin.transfer_leadership("a", "a0")
        assert raised.value.detail == (
            f"the old leader of a stepped down before term {before + 2}, and no new leader was "
            "heard of within 0.3 s"
        )


def test_a_group_that_nobody_knows_is_refused_at_once(threaded: ThreadedCluster) -> None:
    patience = ConnectionConfig(call_timeout_ms=3_600_000)
    with (
        Admin(threaded.cluster.bootstrap, patience) as admin,
        pytest.raises(InvalidRequest) as raised,
    ):
        admin.transfer_leadership("nope")
    assert raised.value.detail == "group 'nope' is not known; the groups are a"


def test_one_background_thread_serves_all(threaded: ThreadedCluster) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dledger client"]

    for _ in range(3):
        with Producer(threaded.cluster.bootstrap) as producer, Admin(threaded.cluster.bootstrap):
            producer.send("t", b"x")
            assert len(threads()) == 1
    assert len(threads()) == 1
