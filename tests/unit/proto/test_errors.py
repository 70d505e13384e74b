"""Errors cross processes: a worker's own error is what its pool raises."""

import pickle

import pytest

from dledger.log.errors import NewerFormat
from dledger_client.errors import ClientError, error_of
from dledger_proto.errors import Code, DledgerError


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_every_error_of_the_client_pickles(code: Code) -> None:
    error = error_of(code, "queue 3", hint="h:1")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ClientError)
    assert type(again) is type(error)
    assert (again.code, again.detail, again.hint) == (code, "queue 3", "h:1")
    assert str(again) == str(error)


def test_errors_with_constructors_of_their_own_pickle() -> None:
    for error in (DledgerError(Code.BUSY), NewerFormat("f", "version 9")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (
            type(error), str(error), error.__dict__
        )  # fmt: skip
