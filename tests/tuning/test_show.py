"""The tables of a search."""

import math
from pathlib import Path

import pytest
from tests.metrics_example import example_metrics
from tests.runs.some_cells import finish, some_cells

from l2d.runs.cells import Cell
from l2d.tuning.show import Trial, ablation_table, ordered
from l2d.utils.files import write_json

LOSSES = {"tuned": {0: 0.1, 1: 0.2}, "tdef": {0: 0.3, 1: 0.3}}


def cells_of(folder: Path) -> dict[str, list[Cell]]:
    """Two seeds of each, with equal shares."""
    cells = {name: some_cells(folder / name, 2) for name in LOSSES}
    for cell in (*cells["tuned"], *cells["tdef"]):
        finish(cell)
    return cells


def rows(text: str) -> dict[str, list[str]]:
    _, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {name: cells for name, *cells in lines}


def test_the_table_by_hand(tmp_path: Path) -> None:
    """The differences from tdef are −0.2 and −0.1: −0.15 ± 12.706·0.05 by t of one degree of freedom."""
    found = rows(ablation_table(LOSSES, cells_of(tmp_path), "tdef"))
    shown = ["1 1", "50.0 / 50.0"]
    assert found["tuned"] == ["2", "0.1500 ± 0.0707", "-0.1500 [-0.7853, +0.4853]", *shown]
    assert found["tdef"] == ["2", "0.3000 ± 0.0000", "", *shown]
    alone = {"tuned": {1: 0.2}}
    assert rows(ablation_table(alone, cells_of(tmp_path), None))["tuned"] == ["1/2", "0.2000", *shown]
    cells = cells_of(tmp_path)
    write_json(cells["tuned"][1].run.path / "metrics.json", example_metrics(ratios=[1.0, 0.0]).as_json())
    assert rows(ablation_table(LOSSES, cells, None))["tuned"][-1] == "75.0 / 25.0"


def test_names_of_trials() -> None:
    names = [Trial(settings, 0.1, 1).name for settings in ({}, {"method.tau": 0.5, "seed": 1})]
    assert names == ["as it is", "method.tau=0.5 seed=1"]


@pytest.mark.parametrize(("last_wins", "order"), [(True, "cbad"), (False, "bcad")])
def test_the_order_of_trials(last_wins: bool, order: str) -> None:
    """b and c are equally good. Failed trials come last."""
    names = {"a": (0.2, ""), "b": (0.1, ""), "c": (0.1, ""), "d": (math.inf, "failed")}
    trials = [Trial({name: 0}, value, 1, reason=why) for name, (value, why) in names.items()]
    assert "".join(one.name[0] for one in ordered(trials, last_wins)) == order
