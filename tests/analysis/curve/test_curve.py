"""Run folders in, curves out: which runs belong together, what is written, and what is said of those that do not fit."""

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from l2d.analysis.curve.evaluate import evaluate
from safetensors.numpy import save_file

from l2d.analysis.curve.groups import HELD_OUT, ONE_VS_ALL, PRICED, WEIGHTS, find_groups, load
from l2d.analysis.curve.points import Floats
from l2d.analysis.curve.show import as_text
from l2d.analysis.report.read import read_cells
from l2d.commands.curve import main
from l2d.methods.one_vs_all import OneVsAll
from l2d.methods.priced import CostRegression, Plugin
from l2d.serving import exported as weights

Command = Callable[..., subprocess.CompletedProcess[str]]
# Six queries, three models: right on 5, 3 and 2 of them.
ERRORS = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 1, 0]]).astype(np.float64)
PRICES = np.array([1.0, 0.6, 0.1])
SCORE = {"deferral_loss": 0.0, "error_rate": 0.0, "mean_price": 0.0, "ratios": [1.0, 0.0, 0.0]}


def write_run(
    runs: Path,
    scale: float,
    decisions: list[int],
    seed: int = 0,
    method: str = "mild",
    errors: Floats = ERRORS,
    prices: Floats = PRICES,
    scores: Floats | None = None,
    expected: Floats | None = None,
    **cost: Any,
) -> Path:
    """A finished run of cost.scale=scale, as l2d.commands.train leaves it."""
    folder = runs / "q/own/table/error_plus_cost" / method / f"{int(1000 * scale):08x}" / f"seed={seed}"
    folder.mkdir(parents=True)
    target = {"one_vs_all": ONE_VS_ALL, "cost_regression": f"{PRICED}CostRegression"}.get(method, "other")
    said = {"name": "error_plus_cost", "prices": prices.tolist(), "scale": scale, **cost}
    config = {"dataset": {"name": "q"}, "cost": said, "method": {"name": method, "_target_": target}, "seed": seed}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    p = errors.shape[1]
    shares = [decisions.count(k) / len(decisions) for k in range(p)]
    price = scale * float(np.dot(shares, prices)) if prices.ndim == 1 else 0.0
    metrics = SCORE | {
        "baselines": {},
        "confusion": [],
        "prices": (scale * (prices if prices.ndim == 1 else prices.mean(axis=0))).tolist(),
        "experts": [{"name": f"model {k}", "error_rate": 0.0, "price": 0.0} for k in range(p)],
        "validation": {"error_rate": 0.25, "mean_price": price, "ratios": shares},
        "method_buffers": {"reward_scale": 1.0},
        "decision": "argmax",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    extra: dict[str, Any] = {} if expected is None else {"expected_errors": expected}
    np.savez_compressed(
        folder / "test.npz",
        costs=errors + scale * prices,
        prices=scale * prices,
        decisions=np.array(decisions),
        scores=np.zeros((len(errors), p)) if scores is None else scores,
        **extra,
    )
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds: free of charge all goes to the strong model, or all but one; at the list's prices two to each; then to the last."""
    write_run(tmp_path, 0.0, [0] * 6)
    write_run(tmp_path, 0.0, [0, 0, 0, 0, 1, 0], seed=1)
    write_run(tmp_path, 1.0, [0, 1, 2, 0, 1, 2])
    write_run(tmp_path, 1.0, [0, 1, 2, 0, 1, 2], seed=1)
    write_run(tmp_path, 3.0, [2] * 6)
    return tmp_path


def curves(runs: Path) -> dict[str, Any]:
    return {group.names[4]: evaluate(group, load(group)) for group in find_groups(read_cells(runs))}


def test_by_hand(runs: Path) -> None:
    """Scale 0: prices 1 and 5.6/6, errors 1/6 and 0. Scale 1: price 3.4/6, no error. Scale 3: price .1, error 4/6.

    Area between .1 and 1, through accuracies 2/6 at .1, 1 at 3.4/6, 11/12 at 5.8/6, 5/6 at 1. 95 % of 5/6 is reached on the first line.
    """
    curve = curves(runs)["mild"]
    found = {mark.at: mark for mark in curve.of("router")}
    assert list(found) == [0, 1, 3]
    assert found[0].point == (pytest.approx(5.8 / 6), pytest.approx(1 / 12))
    assert found[0].error_std == pytest.approx(1 / 6 / np.sqrt(2))
    assert (found[1].price, found[1].error, found[1].error_std) == (pytest.approx(3.4 / 6), 0, 0)
    assert (found[3].point, found[3].error_std, found[3].seeds) == ((0.1, pytest.approx(4 / 6)), None, 1)
    assert [mark.point for mark in curve.of("single")] == [
        (1.0, pytest.approx(1 / 6)),
        (0.6, pytest.approx(1 / 2)),
        (0.1, pytest.approx(2 / 3)),
    ]
    assert [mark.price for mark in curve.of("mixture")] == [
        0.1,
        1.0,
    ]  # the medium model is above the line between the others
    widths = [3.4 / 6 - 0.1, 2.4 / 6, 0.2 / 6]
    heights = [(2 / 6 + 1) / 2, (1 + 11 / 12) / 2, (11 / 12 + 5 / 6) / 2]
    assert curve.summary["auc"]["router"] == pytest.approx(
        sum(a * b for a, b in zip(widths, heights, strict=True)) / 0.9
    )
    assert curve.summary["auc"]["mixture"] == pytest.approx((2 / 6 + 5 / 6) / 2)
    wanted = 0.95 * 5 / 6
    share = (wanted - 2 / 6) / (1 - 2 / 6)
    assert curve.summary["price_to_reach"]["router"] == pytest.approx(0.1 + share * (3.4 / 6 - 0.1))
    assert (curve.summary["strong"], curve.summary["apgr"], curve.summary["cascade"]) == ("model 0", None, None)
    assert curve.summary["auc_std"] is None  # one seed has all scales


def test_the_oracle_is_below_the_router(runs: Path) -> None:
    curve = curves(runs)["mild"]
    oracle = curve.of("oracle")
    for mark in curve.of("router"):
        for best in oracle:
            assert best.at is not None
            assert best.error + best.at * best.price <= mark.error + best.at * mark.price + 1e-9
    assert oracle[0].error == 0
    assert oracle[-1].point == (0.1, pytest.approx(2 / 3))


def test_validation_is_told_at_the_lists_prices(runs: Path) -> None:
    """Two to each of three models: (1 + .6 + .1)/3, also at scale 0, where the run itself paid nothing."""
    write_run(runs, 0.5, [0, 1, 2, 0, 1, 2])
    found = {mark.at: mark for mark in curves(runs)["mild"].of("router")}
    assert found[0.5].validation_price == pytest.approx(1.7 / 3)
    assert found[0].validation_price == pytest.approx((1.0 + (5 + 0.6) / 6) / 2)
    assert found[0].validation_error == 0.25


def test_groups_differ_in_the_scale_alone(runs: Path) -> None:
    write_run(runs, 0.0, [0] * 6, method="ce")  # a single scale is no curve
    write_run(runs, 0.25, [0] * 6, noise=0.2)
    write_run(runs, 0.3, [0] * 6, prices=np.array([2.0, 1.0, 0.5]))
    [group] = find_groups(read_cells(runs))
    assert list(group.cells) == [0, 1, 3]
    assert group.name.startswith("q-own-table-error_plus_cost-mild-")


def test_a_cascade_goes_by_one_vs_all(runs: Path) -> None:
    """Sure of the last model on queries 3 and 6, of the first elsewhere: at any threshold up to .7 no errors but on query 5."""
    assert f"{OneVsAll.__module__}.{OneVsAll.__qualname__}" == ONE_VS_ALL
    sure = np.array([[0.8, 0.1, 0.7 if row in (2, 5) else 0.1] for row in range(6)])
    scores = np.log(sure / (1 - sure))
    write_run(runs, 1.0, [0] * 6, method="one_vs_all", scores=scores)
    write_run(runs, 0.0, [0] * 6, method="one_vs_all", scores=scores)
    mild = curves(runs)["mild"]
    assert mild.summary["cascade"].endswith("one_vs_all/00000000")  # what learned errors alone is taken first
    at = {round(mark.at or 0.0, 2): mark for mark in mild.of("cascade")}
    assert at[0.0].point == (0.1, pytest.approx(4 / 6))
    assert at[0.5].point == (pytest.approx(4.2 / 6), pytest.approx(1 / 6))
    assert at[0.9].point == (1.0, pytest.approx(1 / 6))


def test_two_models_have_an_apgr(tmp_path: Path) -> None:
    """The strong model, the second, helps on the first query alone, and is preferred there: PGR 0, 1, 1."""
    errors, prices = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.1, 1.0])
    write_run(tmp_path, 0.0, [1, 0], errors=errors, prices=prices, scores=np.array([[0.0, 5.0], [0.0, 1.0]]))
    write_run(tmp_path, 1.0, [0, 0], errors=errors, prices=prices, scores=np.array([[0.0, -5.0], [0.0, -1.0]]))
    curve = curves(tmp_path)["mild"]
    assert curve.summary["strong"] == "model 1"
    assert curve.summary["apgr"] == {"0": pytest.approx(2 / 3), "1": pytest.approx(1 / 3)}


def test_the_apgr_of_estimates_goes_by_the_least_expected_cost(tmp_path: Path) -> None:
    """As above: the strong model is expected to be wrong less often on the first query, and on the second more often."""
    errors, prices = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.1, 1.0])
    expected = np.array([[0.9, 0.1], [0.1, 0.9]])
    write_run(tmp_path, 1.0, [0, 0], method="cost_regression", errors=errors, prices=prices, expected=expected)
    assert curves(tmp_path)["cost_regression"].summary["apgr"] == {"1": pytest.approx(2 / 3)}


def test_prices_of_rows(tmp_path: Path) -> None:
    prices = np.array([[1.0, 0.0], [3.0, 1.0]])
    for scale, decisions in ((0.0, [0, 0]), (0.5, [0, 1]), (2.0, [1, 1])):
        write_run(tmp_path, scale, decisions, errors=np.array([[0.0, 1.0], [0.0, 1.0]]), prices=prices)
    curve = curves(tmp_path)["mild"]
    assert [mark.point for mark in curve.of("router")] == [(2.0, 0.0), (1.0, 0.5), (0.5, 1.0)]
    assert curve.of("router")[0].validation_price is None


def run(*arguments: str) -> None:
    main(list(arguments))


def dies_of(*arguments: str) -> str:
    with pytest.raises(SystemExit) as leave:
        run(*arguments)
    assert "\n" not in str(leave.value)
    return str(leave.value)


def test_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(str(runs), "method=mild")
    [folder] = (runs / "curves").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["curve.csv", "curve.png", "summary.json"]
    out = capsys.readouterr().out
    assert "router, cost.scale=1  0.5667  0.0000  0.0000      2" in out
    assert "random mixtures 0.5833" in out
    assert "no confidence cascade: no finished run of one_vs_all" in out
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["rows"], summary["seeds"], summary["scales"]) == (6, [0, 1], [0, 1, 3])
    with (folder / "curve.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["kind"] for row in rows} == {"router", "single", "mixture", "oracle"}
    assert [row["name"] for row in rows if row["kind"] == "single"] == ["model 0", "model 1", "model 2"]


def test_mistakes_are_one_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in {
        ("nowhere",): "nowhere: no such folder",
        (str(runs), "-m"): "-m: unknown flag",
        (str(runs), "seed=0"): "seed=0: unknown; choose by dataset=",
        (str(runs), str(runs)): "one folder of runs at a time",
        (str(runs), "method=ce"): "no two finished runs method=ce that differ in cost.scale alone",
    }.items():
        assert words in dies_of(*arguments)
    (tmp_path / "empty").mkdir()
    assert "experiment=price_curve makes them" in dies_of(str(tmp_path / "empty"))
    capsys.readouterr()


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
    assert "nothing could be drawn" in dies_of(str(tmp_path))
    said = {"data": "different data", "experts": "are not those of the other scales", "file": "unreadable"}[damage]
    assert said in capsys.readouterr().err
    assert not (tmp_path / "curves").exists()


def test_runs_from_before_prices_were_kept(tmp_path: Path) -> None:
    """Prices are in metrics.json too, unless rows have their own."""
    for scale in (1.0, 2.0):
        folder = write_run(tmp_path, scale, [0, 1, 2, 0, 1, 2])
        with np.load(folder / "test.npz") as saved:
            kept = {name: saved[name] for name in saved.files if name != "prices"}
        np.savez(folder / "test.npz", **kept)
    assert curves(tmp_path)["mild"].of("router")[0].price == pytest.approx(3.4 / 6)


@pytest.mark.slow
def test_from_the_sweep_to_the_curve(command: Command, tmp_path: Path) -> None:
    """A run at each scale costs error + scale·price, the list's prices come back, and one_vs_all has its own cascade."""
    given = ["experiment=price_curve", "dataset=mmlu_sim", "dataset.questions=200", "method=one_vs_all", "seed=0"]
    swept = command("-m", *given, "cost.scale=0,0.5")
    assert swept.returncode == 0, swept.stderr
    drawn = command("runs", name="curve", tiny=False)
    assert drawn.returncode == 0, drawn.stderr
    [folder] = (tmp_path / "runs" / "curves").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert [model["price"] for model in summary["models"]] == pytest.approx([1.0, 0.6, 0.1])
    assert summary["scales"] == [0, 0.5]
    assert summary["cascade"] is not None
    for scale, cell in summary["runs"].items():
        metrics = json.loads((tmp_path / cell / "seed=0" / "metrics.json").read_text())
        assert metrics["prices"] == pytest.approx([float(scale) * price for price in (1.0, 0.6, 0.1)])
        [row] = [line for line in drawn.stdout.splitlines() if line.startswith(f"router, cost.scale={scale} ")]
        assert f"{metrics['error_rate']:.4f}" in row


def test_a_run_has_its_own_curve(tmp_path: Path) -> None:
    """Whatever else lies there: of two runs of one method that learned at different lists of prices, each is its own."""
    dear = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    other = write_run(
        tmp_path / "free", 1.0, [0] * 6, method="cost_regression", prices=0 * PRICES + 0.5, expected=1 - ERRORS
    )
    moved = dear.parents[1] / "ffffffff" / "seed=0"
    moved.parent.mkdir()
    other.rename(moved)
    for group in find_groups(read_cells(tmp_path)):
        own = next(iter(group.cells.values()))
        assert {cell.folder for cell in group.repriced.values()} == {own.folder}


def test_one_run_that_takes_any_price_is_a_curve(runs: Path) -> None:
    """By itself, and beside others' curves. Estimates that are the errors themselves give the oracle's curve; one that knows
    nothing but the models' means goes from the strong model to the cheapest at λ = (4/6 − 1/6)/.9, the medium one being worse."""
    assert all(f"{one.__module__}.{one.__qualname__}".startswith(PRICED) for one in (CostRegression, Plugin))
    write_run(runs, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    write_run(runs, 1.0, [0] * 6, method="cost_regression", seed=1, expected=ERRORS)
    found = curves(runs)
    for method in ("mild", "cost_regression"):
        curve = found[method]
        assert [mark.point for mark in curve.of("repriced")] == [mark.point for mark in curve.of("oracle")]
        assert {mark.name for mark in curve.of("repriced")} == {"cost_regression"}
        assert curve.summary["auc"]["cost_regression"] == curve.summary["auc"]["oracle"]
    assert found["cost_regression"].summary["scales"] == [1.0]
    run = found["cost_regression"].summary["runs"]["1"]
    assert found["mild"].summary["repriced"] == {"cost_regression": run}
    assert f"cost_regression, one run for all prices: {run}" in as_text(found["mild"])
    own = as_text(found["cost_regression"])
    assert run not in own
    assert "cost_regression, one run for all prices: its points are in curve.csv" in own
    [area] = [line for line in own.splitlines() if line.startswith("AUC")]
    assert "router" not in area  # one point of it is no curve
    assert "router" in as_text(found["mild"]).partition("AUC")[2]
    means = np.tile(ERRORS.mean(axis=0), (6, 1))
    write_run(runs, 2.0, [0] * 6, method="cost_regression", expected=means, noise=0.1)
    alone = [
        curve
        for group in find_groups(read_cells(runs))
        if list(group.cells) == [2.0]
        for curve in [evaluate(group, load(group))]
    ]
    for mark in alone[0].of("repriced"):
        assert mark.price == (1.0 if (mark.at or 0) < 0.5 / 0.9 else 0.1)


def test_where_each_price_lies_on_validation(tmp_path: Path) -> None:
    """By what the run keeps for the guard at other prices: here, of the same six queries, the first one twice."""
    assert (weights.FILE, tuple(f"{weights.HELD_OUT}.{name}" for name in ("expected", "errors"))) == (WEIGHTS, HELD_OUT)
    folder = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    rows = [0, 0, 1, 2, 3, 4, 5]
    save_file(dict.fromkeys(HELD_OUT, ERRORS[rows]), folder / WEIGHTS)
    curve = curves(tmp_path)["cost_regression"]
    for mark in curve.of("repriced"):
        chosen = [min(range(3), key=lambda k: ERRORS[row, k] + mark.at * PRICES[k]) for row in rows]
        assert mark.validation_price == pytest.approx(np.mean(PRICES[chosen]))
        assert mark.validation_error == pytest.approx(np.mean(ERRORS[rows, chosen]))
    (folder / WEIGHTS).write_bytes(b"cut")
    assert {mark.validation_price for mark in curves(tmp_path)["cost_regression"].of("repriced")} == {None}


def test_a_run_with_prices_by_row_says_why_it_is_no_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_row = np.tile(PRICES, (6, 1))
    folder = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", prices=by_row)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["cost"]["prices"] = "columns"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    main([str(tmp_path)])
    assert (
        capsys.readouterr().err
        == f"{folder.parent}: has cost.prices=columns, so it takes no other prices: a point, no curve\n"
    )
    assert f"{folder}: is one run; give the folder" in dies_of(str(folder))
