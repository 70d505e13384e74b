"""When a message is to be delivered, by delay, time or level, checked (S40, S105). Pure."""

from dledger_client.errors import illegal
from dledger_proto.delays import DELAY_LEVEL_MAX, delay_of_level
from dledger_proto.limits import DELAY_MS_MAX


def delivery_time(
    delay_ms: float | None, deliver_at_ms: int | None, delay_level: int | None, now_ms: int
) -> int:
    """Return the delivery time in milliseconds since 1970; 0: at once. MessageIllegal."""
    given = (delay_ms is not None) + (deliver_at_ms is not None) + (delay_level is not None)
    if not given:
        return 0
    if given > 1:
        raise illegal(
            f"delay_ms, deliver_at_ms, delay_level: {given} are given, at most one may be"
        )
    if delay_level is not None:
        if type(delay_level) is not int or delay_level < 1:
            raise illegal(
                f"delay_level: {delay_level!r}, must be an integer from 1 to {DELAY_LEVEL_MAX}; a"
                " higher one means the last"
            )
        return now_ms + delay_of_level(delay_level)
    if deliver_at_ms is not None:
        if type(deliver_at_ms) is not int or deliver_at_ms < 0:
            raise illegal(f"deliver_at_ms: {deliver_at_ms!r}, must be an integer from 0")
        delay_ms = deliver_at_ms - now_ms
        name = "deliver_at_ms"
    else:
        name = "delay_ms"
    if not isinstance(delay_ms, int | float) or isinstance(delay_ms, bool):
        raise illegal(f"{name}: {delay_ms!r}, must be a number")
    if name == "delay_ms" and not delay_ms >= 0:
        raise illegal(f"{name}: {delay_ms!r}, must not be negative")
    if not delay_ms <= DELAY_MS_MAX:
        raise illegal(f"{name}: {delay_ms:.0f} ms from now, at most {DELAY_MS_MAX}")
    return now_ms + round(delay_ms) if delay_ms > 0 else 0
