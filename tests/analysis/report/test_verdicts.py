"""Each number of the paper beside ours, and the verdicts: on the loss, the order of MILD and TDEF, the shares."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.run_folders import write_run

from l2d.analysis.report.averages import Floats, paired_interval
from l2d.analysis.report.paper import PaperNumber, paper_results
from l2d.analysis.report.read import read_cells
from l2d.analysis.report.verdicts import (
    CellVerdict,
    Measured,
    by_names,
    cell_verdicts,
    distance,
    measured_in,
    verdict,
    verdicts_page,
)
from l2d.commands.report import write_report
from l2d.utils.errors import L2DError

NAMES = ("svhn", "III", "synthetic", "error", "mild")
TITLES = {"dataset": {"svhn": "SVHN"}}
SHARES = (0.5, 0.2, 0.15, 0.1, 0.05)


def ours(*losses: float, method: str = "mild", recipe: str = "paper", oracle: float = 0.0) -> Measured:
    return Measured((*NAMES[:4], method), recipe, dict(enumerate(losses)), SHARES, (oracle, SHARES))


@pytest.mark.parametrize(
    ("losses", "std", "oracle", "word"),
    [
        ((1.0, 1.0, 1.0), 0.0, 0.0, "reproduced"),
        ((1.099, 1.099, 1.099), 0.0, 0.0, "reproduced"),  # within a tenth
        ((1.101, 1.101, 1.101), 0.0, 0.0, "not reproduced"),
        ((0.899, 0.899, 0.899), 0.0, 0.0, "not reproduced"),  # better is another number too
        ((1.06, 1.06, 1.06), 0.0, 0.5, "not reproduced"),  # a tenth of the half that a router can change
        ((1.04, 1.04, 1.04), 0.0, 0.5, "reproduced"),
        ((1.0, 1.0, 1.0), 0.0, 1.1, "reproduced"),  # the margin is never below 0
        ((1.0, 1.0, 1.0), 0.1, 0.0, "reproduced"),  # t(4) at .95: 2.132 · .1/√5 = .0953
        ((1.0, 1.0, 1.0), 0.11, 0.0, "undecided"),
        ((1.3, 1.3, 1.3), 0.2, 0.0, "not reproduced"),  # .3 − .1907 > .1
        ((0.95, 1.0, 1.05), 0.0, 0.0, "reproduced"),  # t(2): 2.920 · .05/√3 = .0843
        ((0.93, 1.0, 1.07), 0.0, 0.0, "undecided"),  # .118
        ((1.0, 1.0), 0.0, 0.0, "few seeds"),
    ],
)
def test_the_rule_by_hand(losses: tuple[float, ...], std: float, oracle: float, word: str) -> None:
    assert verdict(PaperNumber("1", NAMES, 1.0, std), by_names([ours(*losses, oracle=oracle)])) == word


@pytest.mark.parametrize(
    ("cost", "tested", "word"),
    [
        ("error", 0, "reproduced"),
        ("error", 200, "undecided"),  # t(199) · √(.25/200) = 1.653 · .0354 = .0584, above the margin of .05
        ("error", 300, "reproduced"),  # .0476
        ("error_plus_cost", 300, "undecided"),  # the variance is .75/n at most: .0825
        ("error_plus_cost", 900, "reproduced"),  # .0475
    ],
)
def test_unknown_rows_have_their_largest_variance(cost: str, tested: int, word: str) -> None:
    names = (*NAMES[:3], cost, "mild")
    found = Measured(names, "paper", dict.fromkeys(range(3), 0.5), SHARES, (0.0, SHARES), tested)
    number, known = PaperNumber("1", names, 0.5, 0.0), {seed: np.full(200, 0.5) for seed in range(3)}
    assert verdict(number, by_names([found])) == word
    assert verdict(number, by_names([replace(found, losses=known)])) == "reproduced"


def test_only_the_papers_recipe_is_judged_and_the_most_seeds_count() -> None:
    fast, number = ours(1.0, 1.0, 1.0, recipe="fast"), PaperNumber("1", NAMES, 1.0, 0.0)
    assert verdict(number, by_names([fast, ours(2.0, 2.0, 2.0)])) == "not reproduced"
    assert verdict(number, by_names([fast])) == "other recipe"
    assert verdict(number, {}) == "not run"
    assert verdict(PaperNumber("3", ("mmlu", "llm", "llm", "error", "mild"), 1.0, 0.0), {}) == "not reproducible"
    # Runs that differ in speed alone are the same experiment.
    many, one = ours(0.02, 0.02, 0.02), ours(0.5)
    for given in ([many, one], [one, many]):
        assert by_names(given)[NAMES, "paper"] is many


def cell_of(tdef: Measured, mild: Measured) -> CellVerdict:
    [found] = [one for one in cell_verdicts([tdef, mild]) if one.cell == NAMES[:4]]
    return found


@pytest.mark.parametrize(
    ("mild", "order"),
    [((0.1, 0.2, 0.3), "same order"), ((0.3, 0.4, 0.5), "reversed"), ((0.1, 0.4, 0.3), "open"), ((0.1, 0.2), None)],
)
def test_order_by_hand(mild: tuple[float, ...], order: str | None) -> None:
    """The paper has less loss for MILD in this cell. The differences of the seeds are exactly equal, or of both signs."""
    tdef = ours(0.2, 0.3, 0.4, method="tdef", recipe="fast")
    assert cell_of(tdef, ours(*mild, recipe="fast")).order("fast") == order


def test_the_papers_own_difference_by_hand() -> None:
    tdef, mild = (paper_results()[(*NAMES[:4], method)] for method in ("tdef", "mild"))
    found = cell_of(ours(1, 1, 1, method="tdef"), ours(1, 1, 1)).papers_difference
    a, b = tdef.std**2 / 5, mild.std**2 / 5
    from scipy.stats import t

    half = t.ppf(0.975, (a + b) ** 2 / (a**2 / 4 + b**2 / 4)) * (a + b) ** 0.5
    middle = mild.mean - tdef.mean
    assert middle < 0
    assert found == pytest.approx((middle, middle - half, middle + half))


def test_two_way_interval_by_hand() -> None:
    """Two seeds, three rows. Variance of the seeds' means: .5/2; of the rows' means 1/3, less the rest, which is 0."""
    values = {0: np.array([0.0, 1.0, 2.0]), 1: np.array([1.0, 2.0, 3.0])}
    found = paired_interval(values, {0: np.zeros(3), 1: np.zeros(3)})
    from scipy.stats import t

    seeds, rows = 0.5 / 2, 1 / 3
    half = t.ppf(0.975, (seeds + rows) ** 2 / (seeds**2 / 1 + rows**2 / 2)) * (seeds + rows) ** 0.5
    assert found == pytest.approx((1.5, 1.5 - half, 1.5 + half))
    assert paired_interval(values, {0: 0.0, 1: 0.0}) == paired_interval(
        {0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.0}
    )  # rows not known


@pytest.mark.parametrize(("seed", "row", "rest"), [(0.0, 0.3, 0.05), (0.02, 0.1, 0.2), (0.005, 0.1, 0.2)])
def test_intervals_cover_other_seeds_and_rows(seed: float, row: float, rest: float) -> None:
    """With large differences between rows, an interval over seeds alone would cover the truth in 3 of 10 cases."""
    rng = np.random.default_rng(0)

    def covered() -> bool:
        values: Floats = seed * rng.normal(size=(3, 1)) + row * rng.normal(size=400) + rest * rng.normal(size=(3, 400))
        found = paired_interval(dict(enumerate(values)), dict.fromkeys(range(3), np.zeros(400)))
        assert found is not None
        return found[1] <= 0 <= found[2]

    assert 0.92 <= sum(covered() for _ in range(500)) / 500 <= 0.98


def test_distance_of_shares() -> None:
    assert distance([0.5, 0.3, 0.2], [0.4, 0.3, 0.3]) == pytest.approx(0.1)
    assert distance([1.0, 0.0], [0.0, 1.0]) == 1


def test_the_page_counts_and_has_every_cell() -> None:
    fast = [ours(0.04, 0.05, 0.06, method="tdef", recipe="fast"), ours(0.02, 0.03, 0.04, recipe="fast")]
    lines = verdicts_page([*fast, ours(0.0353, 0.0353, 0.0353)], TITLES).splitlines()
    for words in ("104", "1 reproduced", "1 other recipe", "14 not reproducible", "88 not run"):
        assert words in lines[0]
    assert "same order in 1," in lines[2]
    assert "0.1 of 1" in lines[2]
    [cell] = [line for line in lines if line.startswith("| SVHN III synthetic | error | 0.0684")]
    assert "| 0.0353 ± 0.0000 reproduced |" in cell
    assert "-0.0200 [-0.0200, -0.0200]" in cell
    shares = [line for line in lines if line.startswith("| SVHN III synthetic | error | mild |")]
    assert [line.split(" | ")[5] for line in shares] == ["paper", "fast"]


def write_rows(folder: Path, decisions: list[int], costs: list[list[float]]) -> None:
    np.savez(folder / "test.npz", decisions=np.array(decisions), costs=np.array(costs))


def test_a_reports_intervals_know_the_rows(tmp_path: Path) -> None:
    costs = [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    for seed, decisions in enumerate([[0, 0, 1, 2], [0, 1, 1, 2]]):
        loss = sum(costs[row][one] for row, one in enumerate(decisions)) / 4
        write_rows(write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", seed, loss), decisions, costs)
    [cell] = read_cells(tmp_path)
    router, single = cell.losses
    assert [list(np.atleast_1d(router[seed])) for seed in (0, 1)] == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert list(np.atleast_1d(single[0])) == [0, 0, 1, 1]
    # The second run's loss is not the mean of its rows: then no run's rows count.
    write_rows(tmp_path / "svhn/III/synthetic/error/mild/aaaa/seed=1", [0, 0, 1, 2], costs)
    [cell] = read_cells(tmp_path)
    assert cell.losses == ({0: 0.0, 1: 0.25}, {0: 0.4, 1: 0.4})


def test_only_the_papers_runs_are_measured(tmp_path: Path) -> None:
    write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", 0, 0.1)
    write_run(tmp_path, "svhn/III/synthetic/error/mild/bbbb", 0, 0.2, {"method": {"name": "mild", "rho": 5.2}})
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    [found] = measured_in(read_cells(tmp_path))
    assert (found.names, found.losses, found.ratios) == (NAMES, {0: 0.1}, [0.5, 0.3, 0.2])
    assert found.oracle == (0.0, [0.6, 0.3, 0.1])


def test_a_report_has_the_page_if_a_run_is_the_papers(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    assert "verdicts.md" not in write_report([str(tmp_path)])
    assert not (tmp_path / "report" / "verdicts.md").exists()
    write_run(tmp_path, "svhn/I/synthetic/error/mild/aaaa", 0, 0.1)
    assert str(tmp_path / "report" / "verdicts.md") in write_report([str(tmp_path)])


def test_a_report_beside_another_papers_numbers(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/I/synthetic/error/mild/aaaa", 0, 0.3)
    head, row = (
        "table,experts,cost,setup,dataset,method,mean,std,ratios",
        "1,synthetic,error,I,digits,mild,0.2500,0.0100,",
    )
    (tmp_path / "paper.csv").write_text(f"{head}\n{row}60 30 10\n")
    write_report([str(tmp_path)])
    page = (tmp_path / "report" / "verdicts.md").read_text(encoding="utf-8")
    assert "prints 1 deferral loss" in page
    assert "| 0.2500 ± 0.0100 |" in page
    assert "| 60.0 30.0 10.0 | 50.0 30.0 20.0 | fast | 10.0% |" in page


def test_a_file_of_numbers_lacks_a_column(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/I/synthetic/error/mild/aaaa", 0, 0.3)
    (tmp_path / "paper.csv").write_text("table,experts\n")
    with pytest.raises(L2DError, match="no column dataset, setup, cost"):
        write_report([str(tmp_path)])
