"""What an export keeps of the log, and for how long.

Goal: nothing that a plan names is trimmed before it was read, however long that takes; and who has
no plan keeps nothing. Method: a cluster in memory that trims whatever nobody holds, and time that a
test lets pass.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from dledger_client.export import ExportCode, cluster_source
from dledger_client.export import run as protocol
from dledger_client.export.cluster_source import HOLD_MS, ClusterSource
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.holder import HOLDERS, Holder
from dledger_client.export.layout import Piece
from dledger_client.export.manifests.records import Identity
from dledger_client.export.source import FreezeRequest
from dledger_client.export.task import Made, Work
from dledger_client.reading import Edge, HoldRequest, ReadPlan, keeper
from dledger_client.reading.plan import Place
from tests.scenarios.test_exports import OPTIONS, folder, now, refused
from tests.unit.export.fakes import Died, FakeLog, HereEngine, QuickDisk
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.fakes import TOPIC, FakePlanner, FakeQueue, FakeTime

NOW_MS = 1_700_000_000_000
REQUEST = FreezeRequest(TOPIC, {}, with_days=False)


class ForgetfulPlanner(FakePlanner):
    """A cluster whose holds end by their time."""

    def __init__(self, queues: int, time: FakeTime) -> None:
        super().__init__({number: FakeQueue([NOW_MS] * 4) for number in range(queues)})
        self.time = time
        self.until: dict[Place, float] = {}

    def freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        *,
        hold: HoldRequest | None = None,
        fail_on_data_loss: bool = True,
        only: Iterable[Place] | None = None,
    ) -> ReadPlan:
        plan = super().freeze(
            topics, start, end, hold=hold, fail_on_data_loss=fail_on_data_loss, only=only
        )
        self.renew(plan)
        return plan

    def renew(self, plan: ReadPlan) -> None:
        for place, held in plan.holds.items():
            self.until[place] = self.time.now + held.ttl_ms / 1_000

    def trim(self) -> None:
        """Take all that nobody holds any more."""
        for (_, queue), until in self.until.items():
            if until <= self.time.now:
                self.queues[queue].minimum = len(self.queues[queue].times_ms)


@contextmanager
def source_of(
    planner: FakePlanner, root: Path, time: FakeTime | None = None, *, is_exporter: bool = True
) -> Iterator[ClusterSource]:
    """Yield an export's source over a cluster in memory."""
    with (
        patch.object(cluster_source, "Planner", lambda *_: planner),
        patch.object(keeper, "Event", (time or FakeTime()).event),
        ClusterSource("a:1", root, is_exporter=is_exporter) as source,
    ):
        yield source


def test_queues_are_held_until_their_turn_has_come() -> None:
    """One job, and each queue takes it longer than a hold lasts."""
    time = FakeTime()
    planner = ForgetfulPlanner(2, time)
    with source_of(planner, Path("/lake"), time) as source:
        for frozen in source.freeze(REQUEST).queues:
            minimum = planner.queues[frozen.queue].minimum
            assert minimum <= frozen.start, "trimmed before it was read"
            time.advance(2.5 * HOLD_MS / 1_000)
            planner.trim()


def test_what_a_trim_left_is_what_readers_go_on_to_hold() -> None:
    """A trim between the two looks of a freeze, and a queue that was added there."""

    class Moving(FakePlanner):
        def freeze(
            self,
            topics: Sequence[str],
            start: Edge,
            end: Edge,
            *,
            hold: HoldRequest | None = None,
            fail_on_data_loss: bool = True,
            only: Iterable[Place] | None = None,
        ) -> ReadPlan:
            self.queues = {0: FakeQueue([NOW_MS] * 9, minimum=4), 1: FakeQueue([NOW_MS])}
            return super().freeze(
                topics, start, end, hold=hold, fail_on_data_loss=fail_on_data_loss, only=only
            )

    planner = Moving({0: FakeQueue([NOW_MS] * 9, minimum=1)})
    with source_of(planner, Path("/lake")) as source:
        (frozen,) = source.freeze(FreezeRequest(TOPIC, {0: 1}, with_days=False)).queues
        assert (frozen.start, frozen.minimum) == (1, 4)
        (held,) = planner.holds[TOPIC, 0]
        assert source.ranges().holds == {0: held}
        assert held.offset == 4


class DyingEngine(HereEngine):
    """Takes the run with it before anything is made."""

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        raise Died


def test_a_failed_run_keeps_its_hold() -> None:
    """It leaves a plan, and what that names must still be there when it is finished."""
    planner = FakePlanner({0: FakeQueue([NOW_MS] * 4)})
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        with suppress(Died), source_of(planner, root) as source:
            protocol.export_once(storage, source, DyingEngine(), OPTIONS, now)
        assert len(planner.holds[TOPIC, 0]) == 1, "what a plan names may be trimmed"
        with source_of(planner, root) as source:
            source.freeze(REQUEST)
        assert len(planner.holds[TOPIC, 0]) == 1, "a hold of nobody"


def test_who_only_looks_lets_go_of_nobodys_hold() -> None:
    """A verification behind an exporter that died: the plan that it left is needed still."""
    planner = FakePlanner({0: FakeQueue([NOW_MS] * 4)})
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        log = FakeLog({0: 2}, identity=Identity("c1", TOPIC, TOPIC_ID.hex()))
        protocol.export_once(storage, log, HereEngine(), OPTIONS, now)
        with suppress(Died), source_of(planner, root) as source:
            protocol.export_once(storage, source, DyingEngine(), OPTIONS, now)
        (held,) = planner.holds[TOPIC, 0]
        assert held.offset == 2
        with source_of(planner, root, is_exporter=False) as source:
            source.freeze(REQUEST)
            assert len(planner.holds[TOPIC, 0]) == 2
        assert planner.holds[TOPIC, 0] == [held], "what a plan names may be trimmed"


def test_a_refused_run_keeps_no_hold() -> None:
    """It has published no plan: by cron its holds would be as many as a queue can have."""
    planner = FakePlanner({0: FakeQueue([NOW_MS] * 9, minimum=5)})
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        log = FakeLog({0: 2}, identity=Identity("c1", TOPIC, TOPIC_ID.hex()))
        protocol.export_once(storage, log, HereEngine(), OPTIONS, now)

        def run_again() -> None:
            with source_of(planner, root) as source:
                protocol.export_once(storage, source, HereEngine(), OPTIONS, now)

        refused(run_again, ExportCode.DATA_LOSS)
        assert planner.holds == {(TOPIC, 0): []}


def test_who_is_restarted_in_a_loop_has_one_hold() -> None:
    """A queue has 64 at most, and each lasts for minutes: others would be refused theirs."""
    planner = FakePlanner({0: FakeQueue([NOW_MS] * 4)})
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        for _ in range(5):
            with suppress(Died), source_of(planner, root) as source:
                protocol.export_once(storage, source, DyingEngine(), OPTIONS, now)
        # The first had no export yet to leave a name in.
        assert len({held.owner for held in planner.holds[TOPIC, 0]}) == 2


def test_two_at_once_end_their_own_hold() -> None:
    """Who is done lets go of nothing that the other one reads."""
    planner = FakePlanner({0: FakeQueue([NOW_MS] * 4)})
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        protocol.export_once(storage, FakeLog({0: 2}), HereEngine(), OPTIONS, now)
        with source_of(planner, root) as source:
            source.freeze(REQUEST)
            with source_of(planner, root) as rival:
                rival.freeze(REQUEST)
                assert len({held.owner for held in planner.holds[TOPIC, 0]}) == 2
            assert len(planner.holds[TOPIC, 0]) == 1
            assert source.ranges().holds[0] in planner.holds[TOPIC, 0]


def test_a_name_that_is_none_is_passed_over() -> None:
    """Whatever lies there, and a folder that cannot be written to: the name is drawn."""
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        storage.put_if_absent(f"{HOLDERS}/0", b"nonsense")
        first = Holder(storage)
        assert storage.names(HOLDERS) == ["0", "1"]
        first.close()
        again = Holder(storage)
        assert again.name == first.name
        again.close()
        storage.delete(f"{HOLDERS}/1")
        storage.path(f"{HOLDERS}/1").mkdir()
        assert Holder(storage).name != first.name


def test_a_copied_folder_has_a_name_of_its_own() -> None:
    """Both may go on: who ends the hold of one would end that of the other, by one name."""
    with folder() as root:
        storage = ExportStorage(root, QuickDisk())
        storage.put_if_absent("_dledger/plans/0", b"")
        first = Holder(storage)
        shutil.copytree(root, root.with_name("copy"))
        copy = Holder(ExportStorage(root.with_name("copy"), QuickDisk()))
        assert copy.name.partition("-")[0] == first.name.partition("-")[0]
        assert copy.name != first.name
        for each in (first, copy):
            each.close()
