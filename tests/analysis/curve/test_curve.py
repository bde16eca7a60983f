"""Run folders in, curves out: which runs belong together, what is measured, and the numbers that sum it up."""

import re
import shutil
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.metrics_example import example_score
from tests.run_folders import ERRORS, PRICES, write_price_curve
from tests.run_folders import write_priced_run as write_run

from l2d.analysis.curve.measure import HELD_OUT, HELD_OUT_PRICES, WEIGHTS, find_groups, measure_group
from l2d.analysis.curve.show import NO_CASCADE, curve_figure, curve_text
from l2d.analysis.curve.trace import trace_curve
from l2d.analysis.report.read import read_cells
from l2d.core.guard import HeldOut
from l2d.core.results import read_metrics
from l2d.methods.one_vs_all import OneVsAll
from l2d.methods.priced import CostRegression, Plugin
from l2d.runs.artifact import exported as weights
from l2d.utils.errors import L2DError
from l2d.utils.files import write_json

TWO: dict[str, Any] = {"errors": np.array([[1.0, 0.0], [0.0, 0.0]]), "prices": np.array([0.1, 1.0])}  # of two models


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_price_curve(tmp_path)
    return tmp_path


def groups(runs: Path) -> dict[str, Any]:
    return {group.names[4]: group for group in find_groups(read_cells(runs))}


def curves(runs: Path) -> dict[str, Any]:
    return {method: trace_curve(group, measure_group(group)) for method, group in groups(runs).items()}


def change(folder: Path, **changes: Any) -> None:
    """Change the metrics of a run; capabilities by name."""
    metrics = read_metrics(folder / "metrics.json")
    able = replace(metrics.capabilities, **changes.pop("capabilities", {}))
    write_json(folder / "metrics.json", replace(metrics, capabilities=able, **changes).as_json())


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
    alone = [(1.0, pytest.approx(1 / 6)), (0.6, pytest.approx(1 / 2)), (0.1, pytest.approx(2 / 3))]
    assert [mark.point for mark in curve.of("single")] == alone
    # The medium model is above the line between the others.
    assert [mark.price for mark in curve.of("mixture")] == [0.1, 1.0]
    widths = [3.4 / 6 - 0.1, 2.4 / 6, 0.2 / 6]
    heights = [(2 / 6 + 1) / 2, (1 + 11 / 12) / 2, (11 / 12 + 5 / 6) / 2]
    assert curve.summary["auc"]["router"] == pytest.approx(np.dot(widths, heights) / 0.9)
    assert curve.summary["auc"]["mixture"] == pytest.approx((2 / 6 + 5 / 6) / 2)
    wanted = 0.95 * 5 / 6
    share = (wanted - 2 / 6) / (1 - 2 / 6)
    assert curve.summary["price_to_reach"]["router"] == pytest.approx(0.1 + share * (3.4 / 6 - 0.1))
    assert (curve.summary["strong"], curve.summary["cascade"]) == ("model 0", None)
    assert curve.summary["accuracy_to_reach"] == pytest.approx(wanted)
    assert [tuple(model.values()) for model in curve.summary["models"]] == [
        (f"model {k}", *point) for k, point in enumerate(alone)
    ]


def test_equal_prices_have_no_area_and_scale_0_alone_has_no_prices(tmp_path: Path) -> None:
    for seed, scale in product((0, 1), (0.0, 1.0)):
        write_run(tmp_path, scale, [0] * 6, seed=seed, prices=np.full(3, 0.5))
    curve = curves(tmp_path)["mild"]
    assert curve.summary["auc"]["router"] is None
    write_run(tmp_path / "free", 0.0, [0] * 6, method="cost_regression", expected=ERRORS)
    with pytest.raises(L2DError, match=r"cost\.scale=0"):
        curves(tmp_path / "free")


@pytest.mark.parametrize("method", ["cost_regression", "one_vs_all"])
def test_estimates_of_other_data_are_refused(method: str, runs: Path) -> None:
    for file in runs.rglob("metrics.json"):
        file.with_name("data.txt").write_text("a")
    (write_run(runs, 1.0, [0] * 6, method=method, expected=ERRORS) / "data.txt").write_text("b")
    with pytest.raises(L2DError, match=r"data\.txt"):
        measure_group(groups(runs)["mild"])


def test_validation_is_told_at_the_lists_prices(runs: Path) -> None:
    """Two to each of three models: (1 + .6 + .1)/3, also at scale 0, where the run itself paid nothing. A quarter is wrong, whatever was paid."""
    write_run(runs, 0.5, [0, 1, 2, 0, 1, 2])
    found = {mark.at: mark for mark in curves(runs)["mild"].of("router")}
    assert found[0.5].validation_price == pytest.approx(1.7 / 3)
    assert found[0].validation_price == pytest.approx((1.0 + (5 + 0.6) / 6) / 2)
    assert [mark.validation_error for mark in found.values()] == pytest.approx([0.25] * 4)
    folder = runs / "q/own/table/error_plus_cost/mild/00000000/seed=1"
    change(folder, validation=example_score(0.75, [1.0, 0.0, 0.0]))
    [free, *_] = curves(runs)["mild"].of("router")
    assert free.validation_error == pytest.approx((0.25 + 0.75) / 2)


def test_groups_differ_in_the_scale_alone(runs: Path) -> None:
    write_run(runs, 0.0, [0] * 6, method="ce")  # a single scale is no curve
    write_run(runs, 0.25, [0] * 6, noise=0.2)
    write_run(runs, 0.3, [0] * 6, prices=np.array([2.0, 1.0, 0.5]))
    write_run(runs, 0.0, [0] * 6, method="one_vs_all", noise=0.2)
    dearest = runs / "q/own/table/error_plus_cost/mild/00000bb8"
    dearest.rename(dearest.with_name("00000001"))  # the first by its folder is not the first by its scale
    [group] = find_groups(read_cells(runs))
    assert list(group.cells) == [0, 1, 3]
    assert group.cascade is None  # it learned from other costs
    assert group.name.startswith("q-own-table-error_plus_cost-mild-")
    folder = write_run(runs, 0.5, [0] * 6, method="one_vs_all").parent
    shutil.move(folder, runs / "q/own/other/error_plus_cost/one_vs_all/00000000")
    assert find_groups(read_cells(runs))[0].cascade is None  # nor from other experts
    shutil.rmtree(runs / "q/own/table/error_plus_cost/mild/00000000")
    assert [other.name for other in find_groups(read_cells(runs))] == [group.name]  # whichever scales there are


def test_estimates_that_were_learned_without_prices_come_first(runs: Path) -> None:
    """Whatever their folder is called, and however the curve's own runs decide."""
    for file in runs.rglob("config.yaml"):
        file.write_text(f"{file.read_text()}decision: posterior\n")
    for method in ("cost_regression", "one_vs_all"):
        write_run(runs, 1.0, [0] * 6, method=method, expected=ERRORS)
        free = write_run(runs, 0.0, [0] * 6, method=method, expected=ERRORS).parent
        free.rename(free.with_name("ffffffff"))
    mild = groups(runs)["mild"]
    cells = {"cost_regression": mild.repriced["cost_regression"], "one_vs_all": mild.cascade}
    assert {method: cell.names[4:] for method, cell in cells.items()} == {name: (name, "ffffffff") for name in cells}


def test_estimates_of_a_run_with_errors_alone_are_used(runs: Path) -> None:
    """cost=error has another name, and neither prices nor a scale."""
    folder = write_run(runs, 0.0, [0] * 6, method="one_vs_all", name="error").parent
    there = folder.parents[2] / "error/one_vs_all/00000000"
    there.parent.mkdir(parents=True)
    folder.rename(there)
    [mild] = find_groups(read_cells(runs))
    assert mild.cascade is not None
    assert mild.cascade.folder == there


def test_errors_are_the_costs_without_the_prices_and_without_rounding(tmp_path: Path) -> None:
    """1.13 less 0.13 is not 1 in floating point; runs at other scales have the same errors all the same."""
    for scale in (0.0, 1.0):
        write_run(tmp_path, scale, [0] * 6, prices=np.array([0.4, 0.17, 0.13]))
    [group] = find_groups(read_cells(tmp_path))
    assert measure_group(group).errors[0].tolist() == ERRORS.tolist()


def test_a_cascade_of_a_run_with_prices_leaves_them_out(runs: Path) -> None:
    """It is expected to be wrong half of the time by all models, and to pay for each its price."""
    sure = 1 - (0.5 + np.tile(PRICES, (6, 1))) / 2
    folder = write_run(runs, 1.0, [0] * 6, method="one_vs_all", scores=np.log(sure / (1 - sure)))
    change(folder, method_buffers={"reward_scale": 2.0})
    found = measure_group(groups(runs)["mild"])
    assert found.chances[0].estimates == pytest.approx(0.5)


def test_the_picture(runs: Path) -> None:
    """Bars belong to the points, which are drawn by price; each repriced method is a line of its own."""
    write_run(runs, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    write_run(runs, 1.0, [0] * 6, method="plugin", expected=1 - ERRORS)
    folder = runs / "q/own/table/error_plus_cost/plugin/000003e8/seed=0"
    change(folder, capabilities={"takes_prices_later": True})
    curve = curves(runs)["mild"]
    axes: Any = curve_figure(curve).axes[0]
    lines = {str(line.get_label()): line for line in axes.lines}
    for method in ("cost_regression", "plugin"):
        own = sorted(mark.price for mark in curve.of("repriced") if mark.name == method)
        assert list(lines[f"{method}, one run for all prices"].get_xdata()) == own
    [router] = axes.containers
    bars = router.lines[2][1].get_segments()  # of the error, up and down
    assert [bar[1, 1] - bar[0, 1] for bar in bars] == pytest.approx([0, 0, 200 / 6 / np.sqrt(2)])
    bars = router.lines[2][0].get_segments()  # of the price, to both sides
    assert [bar[1, 0] - bar[0, 0] for bar in bars] == pytest.approx([0, 0, 2 * 0.4 / 6 / np.sqrt(2)])
    assert lines["random mixtures"].get_xydata() == pytest.approx(np.array([[0.1, 400 / 6], [1, 100 / 6]]))
    places = {"model 2": (0.1, 400 / 6), "model 1": (0.6, 50), "model 0": (1.0, 100 / 6)}
    assert lines["one model for all"].get_xydata() == pytest.approx(np.array([*places.values()]))
    assert {text.get_text(): text.xy for text in axes.texts} == {name: pytest.approx(at) for name, at in places.items()}


def test_a_cascade_goes_by_one_vs_all(runs: Path) -> None:
    """Sure of the last model on queries 3 and 6, of the first elsewhere: at any threshold up to .7 no errors but on query 5."""
    assert OneVsAll.estimates_costs
    sure = np.array([[0.8, 0.1, 0.7 if row in (2, 5) else 0.1] for row in range(6)])
    scores = np.log(sure / (1 - sure))
    write_run(runs, 1.0, [0] * 6, method="one_vs_all", scores=scores)
    folder = write_run(runs, 0.0, [0] * 6, method="one_vs_all", scores=scores).parent
    shutil.copytree(folder, runs / "q/own/table/error/one_vs_all/00000000")
    mild = curves(runs)["mild"]
    assert mild.summary["cascade"] == str(folder)  # errors alone first, then the same cost
    at = {round(mark.at or 0.0, 2): mark for mark in mild.of("cascade")}
    assert at[0.0].point == (0.1, pytest.approx(4 / 6))
    assert at[0.5].point == (pytest.approx(4.2 / 6), pytest.approx(1 / 6))
    assert at[0.9].point == (1.0, pytest.approx(1 / 6))


def test_the_text_of_two_models(tmp_path: Path) -> None:
    """Free of charge one seed asks the strong model once, the other always; at the list's prices nobody does. Areas between .1
    and 1: the router's through (.775, 0), the oracle's through (.55, 0); by seed .875 and .75."""
    for seed, decisions in enumerate(([1, 0], [1, 1])):
        scores = np.array([[0.0, 5.0 - 4 * seed], [0.0, 1.0 + 4 * seed]])
        write_run(tmp_path, 0.0, decisions, seed=seed, **TWO, scores=scores)
        write_run(tmp_path, 1.0, [0, 0], seed=seed, **TWO, scores=0 * scores)
    text = curve_text(curves(tmp_path)["mild"])
    lines = {cells[0]: cells[1:] for line in text.splitlines() if len(cells := re.split(" {2,}", line)) > 1}
    assert lines["router, cost.scale=0"] == ["0.7750", "0.0000", "0.0000", "2"]
    assert lines["router, cost.scale=1"] == ["0.1000", "0.5000", "0.0000", "2"]
    assert lines["always model 0"] == ["0.1000", "0.5000", "0.0000", "2"]
    assert lines["always model 1"] == ["1.0000", "0.0000", "0.0000", "2"]
    # The price at 95 % of the strong model's accuracy, two areas, the gain and the price saved.
    assert lines["router"][:3] + lines["router"][4:] == ["0.7075", "0.8125", "0.8125", "22%"]
    assert lines["random mixtures"][:2] == ["0.9100", "0.7500"]
    assert lines["oracle"][:2] == ["0.5050", "0.8750"]
    assert NO_CASCADE in text


def test_the_figures_of_benchmarks(runs: Path) -> None:
    """The curve of test_by_hand, whose strong model has 5/6 at price 1. The router's last point is (5.8/6, 1/12): a gain of
    1/12. The oracle makes no error, a gain of 1/6. On the line from (.1, 4/6) to (3.4/6, 0), 5/6 is reached after three quarters.
    The hull has (.1, 4/6) and (3.4/6, 0), and no error from there on."""
    curve = curves(runs)["mild"]
    found = curve.summary
    assert found["budget"] == 1.0
    assert found["gain_at_budget"]["router"] == pytest.approx(1 / 12)
    assert found["gain_at_budget"]["oracle"] == pytest.approx(1 / 6)
    assert found["gain_at_budget"]["mixture"] == pytest.approx(0)
    assert found["gap_closed"] == {"router": pytest.approx(1 / 2), "mixture": pytest.approx(0), "oracle": 1}
    assert found["price_saved"]["router"] == pytest.approx(1 - (0.1 + 0.75 * (3.4 / 6 - 0.1)))
    assert found["aiq"]["router"] == pytest.approx(((3.4 / 6 - 0.1) * (2 / 6 + 1) / 2 + (1 - 3.4 / 6)) / 0.9)
    cells = [f"{found['auc']['router']:.4f}", f"{found['aiq']['router']:.4f}", "+0.0833", "50%", "55%"]
    assert any(line.split()[-5:] == cells for line in curve_text(curve).splitlines())


def test_prices_of_rows(tmp_path: Path) -> None:
    prices = np.array([[1.0, 0.0], [3.0, 1.0]])
    for scale, decisions in ((0.0, [0, 0]), (0.5, [0, 1]), (2.0, [1, 1])):
        write_run(tmp_path, scale, decisions, errors=np.array([[0.0, 1.0], [0.0, 1.0]]), prices=prices)
    curve = curves(tmp_path)["mild"]
    assert [mark.point for mark in curve.of("router")] == [(2.0, 0.0), (1.0, 0.5), (0.5, 1.0)]
    assert curve.of("router")[0].validation_price is None


def test_a_cost_without_a_scale_has_the_prices_it_has(tmp_path: Path) -> None:
    """As cost=extreme: a run of a method that takes other prices is a curve. Without any price there is none."""
    for name, prices in (("priced", PRICES), ("free", 0 * PRICES)):
        folder = write_run(tmp_path / name, 1.0, [0] * 6, method="cost_regression", prices=prices, expected=ERRORS)
        text = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(text.replace("  scale: 1.0\n", ""))
    [group] = find_groups(read_cells(tmp_path / "priced"))
    assert list(group.cells) == [1.0]
    assert find_groups(read_cells(tmp_path / "free")) == []


def test_capabilities_decide_and_not_names(runs: Path) -> None:
    """A method of one's own, of whatever class: one run is a curve if it takes prices later, and a cascade if it estimates costs."""
    folder = write_run(runs, 1.0, [0] * 6, method="my_own", expected=ERRORS, scores=ERRORS)
    assert groups(runs).keys() == {"mild"}
    change(folder, capabilities={"takes_prices_later": True, "estimates_costs": True})
    found = groups(runs)
    assert found.keys() == {"mild", "my_own"}
    assert found["mild"].repriced.keys() == {"my_own"}
    assert found["mild"].cascade.method == "my_own"


def test_a_run_has_its_own_curve(tmp_path: Path) -> None:
    """Whatever else lies there: of two runs of one method that learned at different lists of prices, each is its own."""
    dear = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    own: dict[str, Any] = {"method": "cost_regression", "prices": 0 * PRICES + 0.5, "expected": 1 - ERRORS}
    other = write_run(tmp_path / "free", 1.0, [0] * 6, **own)
    moved = dear.parents[1] / "ffffffff" / "seed=0"
    moved.parent.mkdir()
    other.rename(moved)
    for group in find_groups(read_cells(tmp_path)):
        assert {cell.folder for cell in group.repriced.values()} == {next(iter(group.cells.values())).folder}


def test_one_run_that_takes_any_price_is_a_curve(runs: Path) -> None:
    """By itself, and beside others' curves. Estimates that are the errors themselves give the oracle's curve; one that knows
    nothing but the models' means goes from the strong model to the cheapest at λ = (4/6 − 1/6)/.9, the medium one being worse."""
    assert CostRegression.takes_prices_later
    assert Plugin.takes_prices_later
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
    assert run in curve_text(found["mild"])
    own = curve_text(found["cost_regression"])
    assert run not in own
    assert "router" not in found["cost_regression"].summary["auc"]  # one point of it is no curve
    means = np.tile(ERRORS.mean(axis=0), (6, 1))
    write_run(runs, 2.0, [0] * 6, method="cost_regression", expected=means, noise=0.1)
    [alone] = [group for group in find_groups(read_cells(runs)) if list(group.cells) == [2.0]]
    for mark in trace_curve(alone, measure_group(alone)).of("repriced"):
        assert mark.price == (1.0 if (mark.at or 0) < 0.5 / 0.9 else 0.1)


def test_where_each_price_lies_on_validation(tmp_path: Path) -> None:
    """By what the run keeps for the guard at other prices: here, of the same six queries, the first one twice."""
    names = [f"{weights.HELD_OUT}.{field.name}" for field in fields(HeldOut)]
    assert weights.FILE == WEIGHTS
    assert {*HELD_OUT, *HELD_OUT_PRICES} <= {*names}
    folder = write_run(tmp_path, 1.0, [0] * 6, method="cost_regression", expected=ERRORS)
    rows = [0, 0, 1, 2, 3, 4, 5]
    keep(folder, expected=ERRORS[rows], errors=ERRORS[rows])
    curve = curves(tmp_path)["cost_regression"]
    for mark in curve.of("repriced"):
        chosen = [min(range(3), key=lambda k: ERRORS[row, k] + mark.at * PRICES[k]) for row in rows]
        assert mark.validation_price == pytest.approx(np.mean(PRICES[chosen]))
        assert mark.validation_error == pytest.approx(np.mean(ERRORS[rows, chosen]))
    write_run(tmp_path, 1.0, [0] * 6, seed=1, method="cost_regression", expected=ERRORS)  # which has no such rows
    assert {mark.validation_price for mark in curves(tmp_path)["cost_regression"].of("repriced")} == {None}
    (folder / WEIGHTS).write_bytes(b"cut")
    assert {mark.validation_price for mark in curves(tmp_path)["cost_regression"].of("repriced")} == {None}


def keep(folder: Path, **held: Any) -> None:
    """Write what a run keeps for guards at other prices."""
    save_file({f"held_out.{name}": np.ascontiguousarray(value) for name, value in held.items()}, folder / WEIGHTS)


def test_prices_of_rows_are_a_curve(tmp_path: Path) -> None:
    """Decided by expected prices times λ, paid by the true ones. The first model is never wrong, the second always. Expected prices of
    the first are 1 and 2.9, true ones 2 and 4, the second is free: the rows leave the first model at λ = 1 and 1/2.9."""
    errors, told = np.array([[0.0, 1.0]] * 2), np.array([[1.0, 0.0], [2.9, 0.0]])
    paid = np.array([[2.0, 0.0], [4.0, 0.0]])
    folder = write_run(
        tmp_path, 2.0, [1, 1], method="cost_regression", errors=errors, prices=paid, expected=errors,
        scores=np.concatenate([errors, 2 * told], axis=1),
    )  # fmt: skip
    curve = curves(tmp_path)["cost_regression"]
    for mark in curve.of("repriced"):
        first = np.array([1.0, 2.9]) * (mark.at or 0) < 1
        assert mark.price == pytest.approx((paid[:, 0] * first).mean())
        assert mark.error == pytest.approx((~first).mean())
    assert len({mark.point for mark in curve.of("repriced")}) == 3
    keep(folder, expected=errors, errors=errors, expected_prices=2 * told, prices=2 * paid)
    curve = curves(tmp_path)["cost_regression"]
    for mark in curve.of("repriced"):
        assert (mark.validation_price, mark.validation_error) == mark.point


def test_in_dollars(tmp_path: Path) -> None:
    """A wrong answer costs 2: the loss is price plus twice the error."""
    write_run(tmp_path, 0.5, [0, 1, 2, 0, 1, 2], method="cost_regression", expected=ERRORS, error_price=2.0)
    text = curve_text(curves(tmp_path)["cost_regression"])
    lines = [re.split(" {2,}", line) for line in text.splitlines()]
    assert ["router, cost.error_price=2", "$0.5667", "0.0000", "$0.5667", "-", "1"] in lines
    assert ["always model 0", "$1.0000", "0.1667", "$1.3333", "-", "1"] in lines
    assert re.search(r"random mixtures +\$0\.\d{4} ", text)
    assert "latency" not in text
    prices: dict[str, Any] = {"error_price": 2.0, "latency_price": 0.1}  # latency is not called money
    write_run(tmp_path / "late", 0.5, [0, 1, 2] * 2, method="cost_regression", expected=ERRORS, **prices)
    curve = curves(tmp_path / "late")["cost_regression"]
    assert "cost.latency_price" in curve_text(curve)
    assert "latency" in curve_figure(curve).axes[0].get_xlabel()
