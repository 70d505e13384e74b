"""One table of remedies for the command line and for Spark."""

from dledger_proto.errors import Code
from dledger_proto.remedies import remedy_of


def test_remedies_name_what_their_user_can_give() -> None:
    """Each in its own words; nothing is left open, and most errors say it themselves."""
    assert remedy_of(Code.NOT_PROPOSED, "--name-servers", "--timeout") == (
        "is the cluster running, and is --name-servers right? if so, try again, or give it a "
        "longer --timeout"
    )
    assert remedy_of(Code.NOT_PROPOSED, "endpoints").endswith("if so, try again")
    assert not any("{" in remedy_of(code, "endpoints") for code in Code)
    assert remedy_of(Code.INVALID_ARGUMENT, "endpoints") == ""
