"""l2d curve: which folder, which runs, what is written, and what is said of runs that do not fit."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig
from tests.commands.refusals import refused
from tests.run_folders import ERRORS, PRICES, write_price_curve
from tests.run_folders import write_priced_run as write_run

from l2d.commands.curve import main
from l2d.config import check
from l2d.core.results import read_metrics
from l2d.training.walk import train


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_price_curve(tmp_path)
    return tmp_path


def run(*arguments: str | Path) -> None:
    main([str(argument) for argument in arguments])


@pytest.mark.slow
def test_what_is_written(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(runs, "method=mild")
    [folder] = (runs / "curves").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["curve.csv", "curve.png", "summary.json"]
    out = capsys.readouterr().out
    for part in ("cost.scale=1  0.5667  0.0000  0.0000      2", "router     ", str(folder / "curve.png")):
        assert part in out
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["rows"], summary["seeds"], summary["scales"]) == (6, [0, 1], [0, 1, 3])
    with (folder / "curve.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["kind"] for row in rows} == {"router", "single", "mixture", "oracle"}
    assert [row["name"] for row in rows if row["kind"] == "single"] == ["model 0", "model 1", "model 2"]


@pytest.mark.slow
def test_any_folder_with_a_curve_in_it(tmp_path: Path) -> None:
    """With a method that takes any prices, one seed's folder is enough, from wherever."""
    folder = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    for given in (tmp_path / "q", folder):
        run(given)
        [written] = (given / "curves").iterdir()
        assert json.loads((written / "summary.json").read_text())["seeds"] == [0]


def test_mistakes_are_one_line(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    one = runs / "q/own/table/error_plus_cost/mild/00000000/seed=0"  # by itself no curve
    for given, said in (
        (["nowhere"], "no such folder"),
        ([runs, "-m"], "-m"),
        ([runs, "seed=0"], "seed=0: unknown key"),
        ([runs, runs], "one folder"),
        ([runs, "method=ce"], "no curve"),
        ([tmp_path / "empty"], "experiment=price_curve"),
        ([one], str(one)),
    ):
        assert said in refused(main, *given)


@pytest.mark.parametrize("damage", ["data", "experts", "file"])
def test_runs_that_do_not_belong_together_are_left_out(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [write_run(tmp_path, scale, [0] * 6) for scale in (0.0, 1.0)]
    if damage == "data":
        for number, folder in enumerate(folders):
            (folder / "data.txt").write_text(f"{number}\n")
    elif damage == "experts":
        np.savez(folders[0] / "test.npz", costs=1 - ERRORS, prices=0 * PRICES, decisions=[0] * 6, scores=ERRORS)
    else:
        (folders[0] / "test.npz").write_bytes(b"half")
    assert "nothing could be drawn" in refused(main, tmp_path)
    said = {"data": "data.txt", "experts": "experts", "file": "test.npz: unreadable"}[damage]
    assert said in capsys.readouterr().err
    assert not (tmp_path / "curves").exists()


@pytest.mark.slow
@pytest.mark.measured
def test_from_runs_to_the_curve(
    tiny: Callable[..., DictConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run at each scale costs error + scale·price, the list's prices come back, and one_vs_all has its own cascade."""
    given = ["experiment=price_curve", "dataset=mmlu_sim", "dataset.questions=200", "method=one_vs_all"]
    for scale in (0, 0.5):
        train(check(tiny(*given, f"cost.scale={scale}")))
    capsys.readouterr()
    run(tmp_path / "runs")
    drawn = capsys.readouterr().out
    [folder] = (tmp_path / "runs" / "curves").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert [model["price"] for model in summary["models"]] == pytest.approx([1.0, 0.6, 0.1])
    assert summary["scales"] == [0, 0.5]
    assert summary["cascade"] is not None
    for scale, cell in summary["runs"].items():
        metrics = read_metrics(tmp_path / cell / "seed=0" / "metrics.json")
        assert metrics.prices == pytest.approx([float(scale) * price for price in (1.0, 0.6, 0.1)])
        [row] = [line for line in drawn.splitlines() if line.startswith(f"router, cost.scale={scale} ")]
        assert f"{metrics.error_rate:.4f}" in row
