"""Intervals of paired differences: over seeds and test rows."""

from pathlib import Path

import numpy as np
import pytest
from tests.run_folders import write_run

from l2d.analysis.report.averages import Floats, paired_interval
from l2d.analysis.report.read import read_cells


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
