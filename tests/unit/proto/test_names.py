"""Names that users choose: RocketMQ's rule, and refusals with field, value and limit."""

import pytest

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX, TOPIC_NAME_LENGTH_MAX
from dledger_proto.names import check_client_id, check_group_name, check_topic_name


def refusal(check: object, *arguments: str) -> str:
    assert callable(check)
    with pytest.raises(DledgerError) as raised:
        check(*arguments)
    assert raised.value.code is Code.INVALID_ARGUMENT
    return raised.value.detail


@pytest.mark.parametrize("name", ["a", "%RETRY%g-1", "A|b_9", "g" * GROUP_NAME_LENGTH_MAX])
def test_names_that_are_taken(name: str) -> None:
    check_group_name("consumer_group", name)
    check_topic_name(name)


@pytest.mark.parametrize("name", ["bad group", "bad\n", "\x1b[31m", "gr\u00fc", "a.b", "a/b"])
def test_other_characters_are_refused(name: str) -> None:
    rule = f"{name!r}: only letters, digits, % | _ and - are allowed"
    assert refusal(check_group_name, "consumer_group", name) == f"consumer_group {rule}"
    assert refusal(check_topic_name, name) == f"topic name {rule}"


def test_lengths() -> None:
    assert refusal(check_group_name, "owner", "") == "owner '': has 0 characters, must be 1 to 120"
    long = refusal(check_topic_name, "t" * (TOPIC_NAME_LENGTH_MAX + 1))
    assert long == f"topic name {'t' * 40!r}...: has 128 characters, must be 1 to 127"


def test_client_ids_may_hold_what_addresses_hold() -> None:
    check_client_id("member_id", "")
    check_client_id("member_id", "10.0.0.1@4711#8812")
    assert refusal(check_client_id, "member_id", "a\nb") == (
        "member_id 'a\\nb': only printable characters are allowed"
    )
    assert "has 256 characters, at most 255" in refusal(check_client_id, "member_id", "x" * 256)
