"""The search of random seeds alone keeps its bounds, and remembers what it found."""

from tests.mutants.alone import SIMULATED, Alone, CleanSeeds, proved, search, share_of, shares
from tests.mutants.catalogue import MUTANTS


def test_the_first_seed_that_fails_ends_the_search() -> None:
    """And is told with the number of seeds that it took."""
    tried: list[int] = []

    def run(seed: int) -> str:
        tried.append(seed)
        return "broken" if seed == 3 else ""

    found = search(run, 10, 1e9)
    assert (found.seed, found.tried, found.said) == (3, 4, "broken")
    assert tried == [0, 1, 2, 3]


def test_it_ends_at_either_bound() -> None:
    """Seeds, or CPU seconds: the seed that exceeds them is the last."""
    assert (search(lambda _: "", 5, 1e9).seed, search(lambda _: "", 5, 1e9).tried) == (None, 5)
    assert search(lambda _: "", 5, 0.0).tried == 0


def test_what_found_it_before_is_tried_first_and_keeps_its_cost() -> None:
    """A later run is quick, and says all the same how long it took to find."""
    tried: list[int] = []

    def run(seed: int) -> str:
        tried.append(seed)
        return "broken"

    assert search(run, 10, 1e9, Alone(7, 8, 30.0)) == Alone(7, 8, 30.0, "broken")
    assert tried == [7]


def test_what_found_it_before_may_fail_to_find_it_now() -> None:
    """Then it is searched for anew."""
    found = search(lambda seed: "broken" if seed == 1 else "", 10, 1e9, Alone(7, 8, 30.0))
    assert (found.seed, found.tried) == (1, 2)


def test_a_seed_that_fails_without_a_bug_catches_nothing() -> None:
    """It is left out with a sentence, and the search goes on behind it."""
    clean_runs: list[int] = []
    left_out: list[str] = []

    def run_clean(seed: int) -> str:
        clean_runs.append(seed)
        return "flaky" if seed == 1 else ""

    clean = CleanSeeds(run_clean)
    for _ in range(2):
        run = proved(lambda seed: "broken" if seed else "", clean.failure, left_out.append)
        found = search(run, 10, 1e9)
        assert (found.seed, found.tried, found.said) == (2, 3, "broken")
    assert left_out == ["seed 1 is left out, it fails without a bug: flaky"] * 2
    assert clean_runs == [1, 2], "each that seems to have caught something, once"


def test_a_seed_that_failed_without_a_bug_is_no_catch_of_before() -> None:
    """What a table of before calls the catch is proved, too."""
    run = proved(lambda seed: "broken", lambda seed: "flaky" if seed == 7 else "", lambda _: None)
    assert search(run, 10, 1e9, Alone(7, 8, 30.0)).seed == 0


def test_an_area_without_a_result_has_no_share() -> None:
    """Nothing found and nothing tried are not the same."""
    found, count, _ = shares([])["log"]
    assert share_of(found, count) == "not measured"
    assert (share_of(0, 4), share_of(3, 4)) == ("0%", "75%")


def test_shares_are_counted_by_area() -> None:
    """What the simulation has only stand-ins for does not count."""
    simulated = [mutant for mutant in MUTANTS if mutant.area in SIMULATED]
    assert {mutant.area for mutant in simulated} == set(SIMULATED)
    assert all(mutant.area != "harness" for mutant in MUTANTS), "every bug has an area"
    results = [
        (mutant, Alone(0 if place % 2 else None, 1, 2.0)) for place, mutant in enumerate(simulated)
    ]
    found, count, seconds = shares(results)["all"]
    assert (found, count, seconds) == (len(simulated) // 2, len(simulated), 2.0 * len(simulated))
