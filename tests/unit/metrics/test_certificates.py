"""A process tells of its certificates that end, have ended, or do not hold yet."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker.security.authority import Authority, Wanted
from dledger_monitoring.certificates import (
    DAY_SECONDS,
    EXPIRY,
    SOON_SECONDS,
    CertificateWatch,
    certificates_in,
    finding,
)
from dledger_monitoring.series import Sheet
from dledger_proto.network.tls import LOOK_SECONDS, TlsFolder, client_name
from tests.unit.broker.virtual_loop import VirtualLoop

WANTED = Wanted("app", [client_name("c", "app")])


def now() -> dt.datetime:
    """Return the time of the test, not of its import: certificates begin when they are made."""
    return dt.datetime.now(dt.UTC)


class Lines:
    """A log in a list."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, object]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.seen.append(("warning", event, fields["file"]))

    def error(self, event: str, **fields: object) -> None:
        self.seen.append(("error", event, fields["file"]))


class Holder:
    """A process with a certificate for so many days, of an authority for so many."""

    def __init__(self, root: Path, days: int, authority_days: int = 365) -> None:
        self.root, self.authority = root, Authority.make("c", authority_days)
        self.authority.issue(root, WANTED, days)
        self.wall, self.monotonic, self.log = now().timestamp(), 0.0, Lines()
        tls = TlsFolder(str(root / "app"), monotonic=lambda: self.monotonic)
        self.watch = CertificateWatch(tls, self.log, lambda: self.wall)

    def renew(self, days: int, begins: dt.datetime | None = None) -> None:
        self.authority.issue(self.root, WANTED, days, begins)
        self.monotonic += LOOK_SECONDS

    def after(self, days: float) -> list[tuple[str, str, object]]:
        """Return what the log says after so many days more."""
        self.wall += days * DAY_SECONDS
        before = len(self.log.seen)
        self.watch.look()
        return self.log.seen[before:]

    def metric(self) -> dict[str, float]:
        sheet = Sheet({})
        list(self.watch.collect(sheet))
        (family,) = sheet.families()
        return {sample.labels["file"]: sample.value for sample in family.samples}


def test_it_tells_each_day_from_thirty_days_before_the_end(tmp_path: Path) -> None:
    """A warning at the start and each day, then errors; new files end it."""
    soon = [("warning", "a certificate ends soon", "tls.crt")]
    ended = [("error", "a certificate has ended", "tls.crt")]
    holder = Holder(tmp_path, days=40)
    assert holder.after(0) == holder.after(9.9) == []
    assert holder.after(0.2) == soon
    assert holder.after(0.9) == []
    assert holder.after(0.2) == soon
    assert holder.after(28.9) == ended
    assert holder.after(0.5) == []
    assert holder.after(0.6) == ended
    holder.renew(365, now() + dt.timedelta(days=40))
    assert holder.after(0) == holder.after(2) == []
    holder.renew(5, now() + dt.timedelta(days=42))
    assert holder.after(0) == soon, "new files are looked at at once"
    assert holder.after(-3) == [("error", "a certificate is not valid yet", "tls.crt")]


def test_it_tells_of_its_authority_too(tmp_path: Path) -> None:
    holder = Holder(tmp_path, days=300, authority_days=20)
    assert holder.after(0) == [("warning", "a certificate ends soon", "ca.crt")]
    assert holder.after(21) == [("error", "a certificate has ended", "ca.crt")]


def test_the_metric_is_of_the_first_end_in_a_file(tmp_path: Path) -> None:
    """Of a bundle, too; negative after the end."""
    holder = Holder(tmp_path, days=10)
    bundle = tmp_path / "app" / "ca.crt"
    Authority.make("c", 5).store(tmp_path / "old")
    bundle.write_bytes(bundle.read_bytes() + (tmp_path / "old/authority/ca.crt").read_bytes())
    holder.monotonic += LOOK_SECONDS
    days = {file: round(left / DAY_SECONDS) for file, left in holder.metric().items()}
    assert days == {"tls.crt": 10, "ca.crt": 5}
    holder.wall += 20 * DAY_SECONDS
    assert max(holder.metric().values()) < 0
    assert {file for _, _, file in holder.after(0)} == {"tls.crt", "ca.crt"}


def test_the_bounds_are_exact(tmp_path: Path) -> None:
    Authority.make("c").issue(tmp_path, WANTED, 60, now())
    (said,) = certificates_in((tmp_path / "app" / "tls.crt").read_bytes())
    starts, ends = said.starts.timestamp(), said.ends.timestamp()
    cases = (
        (starts - 1, "a certificate is not valid yet"), (starts, ""), (ends - SOON_SECONDS, ""),
        (ends - SOON_SECONDS + 1, "a certificate ends soon"), (ends - 1, "a certificate ends soon"),
        (ends, "a certificate has ended"),
    )  # fmt: skip
    for at, expected in cases:
        found = finding("tls.crt", said, at)
        assert (found.event if found else "") == expected
    assert said.names == (client_name("c", "app"),)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    found = VirtualLoop()
    yield found
    found.close()


def test_a_running_process_tells_again_each_day(tmp_path: Path, loop: VirtualLoop) -> None:
    holder = Holder(tmp_path, days=10)
    start = now().timestamp() - loop.time()
    holder.watch._wall = lambda: start + loop.time()
    loop.run_for(2.5 * DAY_SECONDS, holder.watch.run())
    assert len(holder.log.seen) == 3


def test_the_series_has_the_name_that_alerts_use() -> None:
    assert EXPIRY.name == "dledger_tls_certificate_expiry_seconds"
