"""The client's settings: every one is checked when its class is made, and explained by `help()`."""

import pydoc
from dataclasses import fields
from typing import Any

import pytest

from dledger_client import ConnectionConfig, ConsumerConfig, ProducerConfig
from dledger_client.latency import LatencyTable

KINDS: list[type[Any]] = [ConnectionConfig, ConsumerConfig, ProducerConfig]
FIELDS = [(kind, each) for kind in KINDS for each in fields(kind)]
LIMITED = [(kind, each) for kind, each in FIELDS if "limits" in each.metadata]
OTHERS = [(kind, each) for kind, each in FIELDS if "limits" not in each.metadata]


@pytest.mark.parametrize(("kind", "field"), LIMITED)
def test_a_number_has_limits(kind: type[Any], field: Any) -> None:
    least, most = field.metadata["limits"]
    for inside in (least, field.default, most):
        assert getattr(kind(**{field.name: inside}), field.name) == inside
    for outside in (least - 1, most + 1, True, "1", None, float("nan")):
        with pytest.raises(ValueError, match=f"^{field.name}: .*, must be an? .* from "):
            kind(**{field.name: outside})


@pytest.mark.parametrize(("kind", "field"), OTHERS)
def test_every_other_setting_has_a_type(kind: type[Any], field: Any) -> None:
    for wrong in (None, 1, object()):
        with pytest.raises(ValueError, match=f"^{field.name}: .*, must be a "):
            kind(**{field.name: wrong})


def test_a_whole_number_of_milliseconds_may_have_no_fraction() -> None:
    with pytest.raises(
        ValueError, match=r"^timeout_ms: 1\.5, must be an integer from 1 to 86400000"
    ):
        ProducerConfig(timeout_ms=1.5)  # type: ignore[arg-type]
    assert ProducerConfig(linger_ms=1.5).linger_ms == 1.5


@pytest.mark.parametrize("kind", [*KINDS, LatencyTable])
def test_help_says_what_each_field_means(kind: type[Any]) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    said = text.partition("Attributes:")[2].partition("Methods defined here")[0]
    assert [each.name for each in fields(kind) if f" {each.name}: " not in said] == []
