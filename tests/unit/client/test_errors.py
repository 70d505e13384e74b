"""The exception tree against the one table of outcomes."""

import pickle

import pytest

from dledger_client import AsyncAdmin, AsyncConsumer, AsyncProducer, ClientClosed, errors
from dledger_client.errors import ClientError, NotStored, client_error, code_of, error_of
from dledger_proto.errors import MEANINGS, Code, DledgerError
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_every_code_has_a_class_that_tells_the_truth(code: Code) -> None:
    error = error_of(code, "detail", hint="host:1")
    assert (error.code, error.detail, error.hint) == (code, "detail", "host:1")
    assert error.definite is MEANINGS[code].definite is isinstance(error, NotStored)
    assert error.retriable is MEANINGS[code].retriable
    translated = client_error(DledgerError(code, "x"))
    assert type(translated) is type(error)
    assert client_error(error) is error


def test_copies_do_not_share_tracebacks() -> None:
    error = error_of(Code.BUSY, "x", hint="h:1")
    error.__cause__ = cause = ValueError("why")
    try:
        raise error
    except ClientError as raised:
        copy = raised.again()
    assert copy.__traceback__ is None
    assert copy.__cause__ is cause
    assert (type(copy), copy.code, copy.detail, copy.hint) == (type(error), Code.BUSY, "x", "h:1")


def test_an_unknown_outcome_may_be_repeated_only_where_the_call_says_so() -> None:
    assert not error_of(Code.UNKNOWN_OUTCOME).retriable
    safe = error_of(Code.UNKNOWN_OUTCOME, repeatable=True)
    assert safe.retriable
    for copy in (safe.again(), client_error(safe), pickle.loads(pickle.dumps(safe))):
        assert copy.retriable
    assert client_error(DledgerError(Code.UNKNOWN_OUTCOME, repeatable=True)).retriable
    assert not error_of(Code.INTERNAL, repeatable=True).retriable


def test_an_unknown_number_is_an_unknown_outcome() -> None:
    assert code_of(103) is Code.BUSY
    assert code_of(99_999) is Code.UNKNOWN_OUTCOME


def test_the_tree_in_the_docstring_is_complete() -> None:
    drawn = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, ClientError):
            assert name in drawn, f"{name} is not drawn"
            assert kind.__doc__, f"{name} has no docstring"


def test_a_closed_client_never_works_again() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            producer = AsyncProducer(cluster.bootstrap)
            consumer = AsyncConsumer(cluster.bootstrap)
            admin = AsyncAdmin(cluster.bootstrap)
            for client in (producer, consumer, admin):
                await client.start()
                await client.close()
            for call in (
                lambda: producer.send("t", b"x"),
                lambda: consumer.assign("t"),
                lambda: consumer.poll(),
                lambda: admin.list_topics(),
                lambda: admin.transfer_leadership("a"),
            ):
                with pytest.raises(ClientClosed) as raised:
                    await call()
                assert (raised.value.definite, raised.value.retriable) == (True, False)

    run(body())


def test_text_names_code_and_detail() -> None:
    assert str(error_of(Code.NO_LEADER, "group a")) == "NO_LEADER: group a"
