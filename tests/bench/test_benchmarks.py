"""The figures of bench/benchmarks.py from held-out rows, by hand."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from l2d.core.guard import Guard
from l2d.data.sheet import read_sheet, write_sheet

Bench = Callable[[str], ModuleType]


def test_figures(bench: Bench) -> None:
    """Two tasks of one and three rows. Alone, model 0 costs (0 + 2/3)/2 and model 1 (1 + 1/3)/2; the router pays for the first row
    and for the last one. The guarded router is model 0."""
    module = bench("benchmarks")
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    found = module.Judged(costs, torch.ones(4).long(), torch.zeros(4).long(), True, ["a", "b", "b", "b"])
    row = module.figures(found, "x", "", "knn", 0, ["method=knn", "dataset.path=/somewhere"])
    shown = [float(row[key]) for key in ("loss", "single", "oracle", "guarded")]
    assert shown == pytest.approx([2 / 3, 1 / 3, 0, 1 / 3], abs=1e-6)
    assert [float(row[key]) for key in ("gain", "guarded_gain")] == pytest.approx([-1 / 3, 0], abs=1e-6)
    assert (row["by_task"], row["tasks"], row["fell_back"]) == ("a:1.0000 b:0.3333", "2", "1")
    assert row["command"] == "l2d train method=knn"
    assert {*row} == {*module.RESULTS.fields}
    # Task a: mean 2, s² = 2, so s²/n = 1. Task b: mean 10, nothing varies. Over tasks: 6 ± √1/2.
    mean, error = bench("benchmarks").over_tasks(torch.tensor([1.0, 10.0, 3.0, 10.0, 10.0]).double(), list("ababb"))
    assert (mean, error) == (pytest.approx(6), pytest.approx(0.5))


@pytest.mark.parametrize(("price", "falls_back"), [(0.0, False), (0.9, True)])
def test_other_prices(price: float, falls_back: bool, bench: Bench) -> None:
    """Each model is right on its own half of 200 rows, and the estimates know it. At a price of .9 the other model is hardly worth
    it; the estimates are then turned round, so that routing loses."""
    module = bench("benchmarks")
    errors = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double().repeat(100, 1)
    expected = 1 - errors if falls_back else errors
    found = module.at_prices(errors, expected, torch.tensor([price, 0.0]).double())
    assert found.fell_back is falls_back
    row = module.figures(found, "x", "", "knn", 0, [])
    assert float(row["single"]) == pytest.approx(0.5)
    assert float(row["guarded_gain"]) == pytest.approx(0.0 if falls_back else 0.5)


def test_each_fifth_has_its_own_guard(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them keep the router, which asks model 1. Two fall back to model 0."""
    module = bench("benchmarks")
    fitted = iter([*[Guard(None, None, 0, 0.1, 0.1)] * 3, *[Guard(None, 0, 0, -0.1, 0.1)] * 2])
    monkeypatch.setattr(module, "fit_guard", lambda *_: next(fitted))
    expected, free = torch.tensor([[1.0, 0.0]] * 10).double(), torch.zeros(2).double()
    found = module.at_prices(torch.zeros(10, 2).double(), expected, free)
    assert (found.decisions.tolist(), sorted(found.guarded.tolist())) == ([1] * 10, [0] * 4 + [1] * 6)
    assert not found.fell_back


def test_only_questions_that_all_models_were_asked(bench: Bench, tmp_path: Path) -> None:
    module = bench("benchmarks")
    write_sheet(tmp_path / "t.parquet", {"id": ["a", "b"], "correct_x": [1.0, None], "correct_y": [0.0, 1.0]})
    found = module.complete(tmp_path / "t.parquet", tmp_path / "runs")
    assert (found, read_sheet(found).texts("id")) == (tmp_path / "runs" / "t-complete.parquet", ["a"])
    assert module.complete(found, tmp_path) == found


def test_tables(bench: Bench) -> None:
    """Accuracies in percent, the best router first; published numbers and the gain beside them."""
    about = {"n": "1000", "machine": "M", "versions": "V", "commit": "C", "single": "0.45", "oracle": "0.25"}
    about |= {"guarded": "0.45", "gain": "0.03", "error": "0.01"}
    rows = [
        {**about, "method": method, "seed": seed, "loss": loss, "by_task": tasks}
        for method, seed, loss, tasks in (
            ("knn", "0", "0.44", "a:0.5 b:0.38"),
            ("plugin", "0", "0.42", "a:0.44 b:0.40"),
            ("plugin", "1", "0.40", "a:0.40 b:0.40"),
        )
    ]
    lines = bench("benchmarks").split_table(rows, {"others": "58.5"}).splitlines()
    cells = [[cell.strip(" `*") for cell in line.split("|")[1:-1]] for line in lines[2:7]]
    assert [row[:2] for row in cells[:2]] == [["others", "58.5"], ["best single model on these rows", "55.00"]]
    assert cells[3:] == [
        ["plugin", "59.00 ± 1.41", "55.00 ± 0.00", "+3.00 ± 1.96", "58.00", "60.00"],
        ["knn", "56.00", "55.00", "+3.00 ± 1.96", "50.00", "62.00"],
    ]
    assert {"1,000", "2", "M,", "C)"} <= {*lines[-1].replace("(", "").split()}
