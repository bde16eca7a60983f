"""A router that may ask again: trained in memory and by a run, at other prices, within a budget, step by step."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import l2d
from l2d.analysis.log_value import log_value
from l2d.config import Experiment, check, compose, to_plain
from l2d.core.results import read_metrics
from l2d.router.plan_pictures import paths_of, plan_curve_figure, plan_points, tree_lines
from l2d.router.trained import plan_of
from l2d.runs.folder import RunFolder
from l2d.runs.summary import result_table
from l2d.training.cross_validation import train_and_judge
from l2d.utils.errors import L2DError, ParameterError

NAMES = ("small", "other", "large")
PRICES = [0.01, 0.01, 0.35]
OPTIONS = {"progress": False}
QUICK = {**OPTIONS, "method.seconds": 0.1}  # few candidates


def world(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[list[str]]]:
    """Two cheap experts, right with .7 each, whose wrong answers differ; a dear one that is always right. Inputs say nothing."""
    draw = np.random.default_rng(seed)
    right = np.column_stack([draw.random((n, 2)) < 0.7, np.ones(n, dtype=bool)])
    answers = [["yes" if ok else f"no{k}" for k, ok in enumerate(row)] for row in right]
    return draw.normal(size=(n, 2)), (~right).astype(float), answers


@pytest.fixture(scope="module")
def router() -> l2d.Router:
    X, errors, answers = world(900, 0)
    return l2d.fit(X, errors=errors, prices=PRICES, experts=NAMES, answers=answers, method="plan", options=QUICK)


def test_the_plan_is_worth_what_the_hand_says(router: l2d.Router) -> None:
    """Two agree with .49: .02 + .51·.35 = .1985; the best single expert costs .31."""
    X, errors, answers = world(3000, 1)
    score = router.score(X, errors=errors, answers=answers)
    assert score.deferral_loss == pytest.approx(0.1985, abs=0.015)
    assert score.best_single_loss == pytest.approx(0.31, abs=0.03)
    assert score.gain == pytest.approx(score.best_single_loss - score.deferral_loss)
    assert score.mean_price is not None
    assert score.mean_price == pytest.approx(score.deferral_loss, abs=0.01)  # nearly no error is left
    assert sum(score.shares.values()) == pytest.approx(1)
    with pytest.raises(ParameterError, match=r"^answers: "):
        router.score(X, errors=errors)


def test_an_error_is_kept_at_a_lower_price(router: l2d.Router, tmp_path: Path) -> None:
    """One cheap expert alone errs in 30 %, for .01; who asks a third where two disagree hardly errs, for about .2."""
    X, errors, answers = world(3000, 2)
    routers = [router.at(max_error=level) for level in (0.1, 0.4)]
    scores = [one.score(X, errors=errors, answers=answers) for one in routers]
    wrong, spent = (
        [score.deferral_loss - (score.mean_price or 0.0) for score in scores],
        [score.mean_price for score in scores],
    )
    assert wrong[0] < 0.1
    assert 0.2 < wrong[1] < 0.4
    assert spent == pytest.approx([0.2, 0.01], abs=0.02)
    point = routers[0].operating_point
    assert point is not None
    assert (point.max_error, point.confidence) == (0.1, 0.95)
    routers[0].save(tmp_path / "strict")
    saved = l2d.Router.load(tmp_path / "strict")
    assert saved.operating_point == point
    assert saved.score(X, errors=errors, answers=answers).deferral_loss == scores[0].deferral_loss
    with pytest.raises(ParameterError, match=r"^max_error=0.001: cannot be kept"):
        router.at(max_error=0.001)
    with pytest.raises(ParameterError, match=r"^max_error=0.4: .*budget"):
        router.at(max_error=0.4, budget=0.1)


def test_steps_ask_the_third_only_if_two_disagree(router: l2d.Router) -> None:
    step = router.begin([0.0, 0.0])
    assert step.ask in ("small", "other")
    assert (step.accept, step.chance, step.spent) == (None, None, 0)
    second = step.answered("Yes.")
    assert {step.ask, second.ask} == {"small", "other"}
    agreed, differ = second.answered("yes"), second.answered("no")
    assert agreed.ask is None
    assert agreed.accept in ("small", "other")
    assert agreed.chance is not None
    assert agreed.chance > 0.9
    assert agreed.spent == pytest.approx(0.02)
    assert differ.ask == "large"
    last = differ.answered("yes")
    assert last.ask is None
    assert last.spent == pytest.approx(0.37)
    assert last.asked == (step.ask, second.ask, "large")
    with pytest.raises(ParameterError):
        last.answered("again")
    shown = repr(differ)
    assert all(word in shown for word in (*step.asked, "ask='large'", "spent=0.02"))
    assert "tensor" not in shown
    assert second.asked == (step.ask,)  # a step never changes


def test_a_plan_goes_on_without_experts_that_fail(router: l2d.Router) -> None:
    step = router.begin([0.0, 0.0])
    failed = step.failed()
    assert failed.ask not in (None, step.ask)
    while failed.ask is not None:
        failed = failed.failed()
    assert failed.accept is None
    assert sorted(failed.asked) == sorted(NAMES)
    assert failed.spent == 0
    assert step.failed(price=0.005).answered("yes", price=0.5).spent == pytest.approx(0.505)
    only = step.failed()
    while only.ask is not None:
        only = only.answered("yes")
    assert only.accept not in (None, step.ask)


def test_a_cap_is_never_exceeded(router: l2d.Router) -> None:
    step = router.begin([0.0, 0.0], cap=0.1)
    for answer in ("a", "b"):
        step = step.answered(answer)
    assert step.ask is None
    assert step.accept in ("small", "other")
    assert step.spent <= 0.1
    with pytest.raises(ParameterError, match=r"^cap=0\.001: "):
        router.begin([0.0, 0.0], cap=0.001)
    assert router.begin([0.0, 0.0], cap=0.01).ask in ("small", "other")  # prices are kept in 32 bits
    assert router.at(budget=0.01).operating_point is not None
    with pytest.raises(ParameterError, match=r"^confidence=1\.5"):
        router.at(budget=0.1, confidence=1.5)


def test_what_a_plan_is_not_asked_for(router: l2d.Router, tmp_path: Path) -> None:
    """One choice stands for several calls: costs that contain prices, a comparison of choices and a program would be wrong."""
    X, errors, answers = world(300, 4)
    with pytest.raises(ParameterError, match=r"^costs: .*plan"):
        router.score(X, errors + PRICES, answers=answers)
    with pytest.raises(ParameterError, match=r"^other: .*plan"):
        router.compare(router, X, errors=errors)
    with pytest.raises(L2DError, match="plan"):
        router.export(tmp_path / "router.pt2")


def test_other_prices_make_another_plan(router: l2d.Router) -> None:
    X, errors, answers = world(2000, 2)
    dear = router.at([0.01, 0.01, 2.0])
    assert dear.score(X, errors=errors, answers=answers).shares["large"] == 0
    free = router.at({"small": 0.01, "other": 0.01, "large": 0.0})
    assert free.begin([0.0, 0.0]).ask == "large"
    assert free.score(X, errors=errors, answers=answers).deferral_loss == pytest.approx(0, abs=1e-6)
    assert plan_of(router.at(raw=True))[1] == "plan"  # the learned one, whatever the guard says


@pytest.mark.slow
def test_a_budget_is_kept(router: l2d.Router) -> None:
    X, errors, answers = world(3000, 3)
    within = router.at(budget=0.1, confidence=0.95)
    point = within.operating_point
    assert point is not None
    assert point.spend <= 0.1
    assert point.overspend <= 0.05 + 1e-6
    score = within.score(X, errors=errors, answers=answers)
    assert score.mean_price is not None
    assert score.mean_price <= 0.1
    assert within.at([price * 1.1 for price in PRICES]).operating_point is not None  # the budget stays
    with pytest.raises(ParameterError, match=r"^budget=0\.001: "):
        router.at(budget=0.001)


def test_a_saved_router_asks_as_before(router: l2d.Router, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    again = l2d.Router.load(tmp_path / "router")
    X, errors, answers = world(300, 4)
    first, second = (one.score(X, errors=errors, answers=answers) for one in (router, again))
    assert second.deferral_loss == first.deferral_loss
    assert again.begin(X[0]).ask == router.begin(X[0]).ask
    assert again.description.plan == router.description.plan
    assert [again.route([x])[0].expert for x in X[:3]] == [router.begin(x).ask for x in X[:3]]


def test_the_tree_says_whom_the_plan_asks(router: l2d.Router, tmp_path: Path) -> None:
    planner, name = plan_of(router)
    assert planner is not None
    paths = paths_of(planner, name, router.experts)
    assert sum(count for count, _ in paths.values()) == len(planner.right)
    for path, (_, right) in paths.items():
        if len(path) == 3:  # two were asked
            assert "agrees" in path[1]
            assert right == 1
        if len(path) == 4:
            assert "large" in path[2]
    lines = tree_lines(paths)
    assert lines[0].startswith("ask ")
    assert all(line.endswith(")") for line in lines)
    router.plot().savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_a_router_that_asks_one_expert_has_steps_too() -> None:
    X, errors, _ = world(200, 5)
    plain = l2d.fit(X, errors=errors, prices=PRICES, experts=NAMES, method="linear", options=OPTIONS)
    step = plain.begin(X[0])
    assert step.ask == plain.route(X[:1])[0].expert
    done = step.answered("anything")
    assert (done.ask, done.accept) == (None, step.ask)
    assert step.failed().ask not in (None, step.ask)


def test_the_next_in_the_ranking_is_asked_if_one_fails() -> None:
    """The best fails; the cheapest is the worst, so it comes last."""
    X, wrong = world(200, 5)[0], np.tile([1.0, 0.0, 0.3], (200, 1))
    router = l2d.fit(X, errors=wrong, prices=[0.01, 0.02, 0.03], experts=NAMES, method="linear", options=OPTIONS)
    step = router.begin(X[0])
    for name in ("other", "large", "small"):
        assert step.ask == name
        step = step.failed()
    assert (step.ask, step.accept) == (None, None)
    assert router.begin(X[0], cap=0.015).ask == "small"


def test_at_other_prices_the_learned_plan_needs_the_gain_that_it_needed_in_training(router: l2d.Router) -> None:
    guard = replace(router.description.guard, needed=1e9)
    careful = replace(router, description=replace(router.description, guard=guard))
    for prices in ([0.01, 0.05, 0.5], [0.01, 0.01, 2.0], PRICES):  # at the first it is followed without such a need
        found = careful.at(prices).description
        assert found.guard.needed == 1e9
        assert found.plan != "plan"


@pytest.mark.parametrize(
    ("change", "word"), [({"answers": None}, "answer"), ({"p": 9}, "at most 8"), ({"asked": 20}, "50 rows")]
)
def test_what_plans_need(change: dict[str, Any], word: str) -> None:
    X, errors, answers = world(120, 6)
    if p := change.get("p"):
        errors, answers = np.tile(errors, (1, 3))[:, :p], [(row * 3)[:p] for row in answers]
    if asked := change.get("asked"):
        errors[asked:, 2] = np.nan
    given = None if "answers" in change else answers
    prices = None if "p" in change else PRICES
    with pytest.raises(L2DError, match=word):
        l2d.fit(X, errors=errors, prices=prices, answers=given, method="plan", options=QUICK)


def table_run(folder: Path, n: int, asked: int, kinds: tuple[str, ...] = ("correct", "answer", "price")) -> Experiment:
    """asked: the rows on which all experts were asked, the first ones."""
    X, errors, answers = world(n, 7)
    cells = {"correct": (1 - errors).astype(int).astype(object).tolist()}
    cells["correct"][asked:] = [[*row[:2], ""] for row in cells["correct"][asked:]]
    cells |= {"answer": answers, "price": [PRICES] * n}
    columns = ["x", "y", *(f"{kind}_{name}" for kind in kinds for name in NAMES)]
    rows = zip(X.tolist(), *(cells[kind] for kind in kinds), strict=True)
    lines = [",".join(str(cell) for part in row for cell in part) for row in rows]
    (folder / "log.csv").write_text("\n".join([",".join(columns), *lines]))
    given = ["dataset=table", f"dataset.path={folder / 'log.csv'}", f"runs_dir={folder / 'runs'}"]
    given += [
        "method=plan",
        "method.seconds=0.1",
        "cost=columns" if "price" in kinds else "cost=error",
        "progress=false",
    ]
    return check(to_plain(compose(given)))


@pytest.mark.parametrize(
    ("asked", "kinds", "word"), [(60, ("correct", "answer"), "50 rows"), (90, ("correct",), "answer_NAME")]
)
def test_a_table_that_teaches_no_plan_is_refused(asked: int, kinds: tuple[str, ...], word: str, tmp_path: Path) -> None:
    """Sixty rows are enough, but not for each of five folds."""
    experiment = table_run(tmp_path, 90, asked, kinds)
    with pytest.raises(ParameterError, match=rf"^method=plan: .*{word}"):
        train_and_judge(experiment)
    assert not RunFolder.of(experiment.plain).path.exists()


@pytest.mark.slow
def test_a_run_is_judged_beside_simple_plans(tmp_path: Path) -> None:
    experiment = table_run(tmp_path, 400, 400)
    metrics = train_and_judge(experiment)
    run = RunFolder.of(experiment.plain)
    assert metrics is not None
    assert read_metrics(run.path / "metrics.json") == metrics
    assert [one.name for one in metrics.experts] == [*NAMES, "one choice", "cascade", "two agree", "majority", "plan"]
    by_name = {one.name: one.error_rate + one.price for one in metrics.experts}
    assert by_name["two agree"] == pytest.approx(0.1985, abs=0.04)
    assert by_name["plan"] == pytest.approx(metrics.deferral_loss)
    single, plans = metrics.baselines.best_single, metrics.plans
    assert plans is not None
    assert single.deferral_loss == pytest.approx(min(by_name[name] for name in NAMES))
    assert single.ratios[3:] == [0] * 5
    assert plans.simple.deferral_loss == pytest.approx(by_name["two agree"])
    assert plans.singles == 3
    assert plans.gain.gain == pytest.approx(single.deferral_loss - metrics.guarded.deferral_loss)
    assert metrics.baselines.random.deferral_loss == pytest.approx(np.mean([by_name[name] for name in NAMES]))
    assert metrics.guarded.deferral_loss <= plans.simple.deferral_loss + 0.01
    shown = [row[0] for row in result_table(metrics)[1]]
    assert len({*shown}) == len(shown)
    assert {"best simple plan", "best single expert", "majority", "always large"} <= {*shown}
    assert "two agree" not in shown  # it is the best one
    assert metrics.collapsed_expert is None
    router = l2d.Router.load(run.path)
    assert router.description.plan is not None
    assert router.begin({"x": 0.0, "y": 0.0}).ask in ("small", "other")
    with np.load(run.path / "test.npz") as arrays:
        costs, decisions = torch.from_numpy(arrays["costs"]), torch.from_numpy(arrays["decisions"])
    assert costs.shape == (400, 8)
    assert set(decisions.tolist()) == {7}
    assert "two agree" in (run.path / "candidates.txt").read_text()


def test_the_curve_of_plans(router: l2d.Router) -> None:
    """At the prices themselves it has the figures that plans are chosen by; dearer calls are made less often."""
    points, planner = plan_points(router), plan_of(router)[0]
    assert planner is not None
    found = {(one.kind, one.name): one for one in points if one.factor == 1}
    cost, spent = planner.judged(planner.plans["two agree"], planner.paid)
    agree = found["two agree", ""]
    assert (agree.price, agree.price + agree.error) == pytest.approx(
        (float(spent.mean()), float(cost.mean())), abs=1e-6
    )
    assert (found["single", "large"].price, found["single", "large"].error) == pytest.approx((0.35, 0.0))
    for kind in ("plan", "oracle"):
        first, *_, last = (one for one in points if one.kind == kind)
        assert (first.error, first.price) == pytest.approx((0.0, 0.01 if kind == "oracle" else 0.3), abs=0.1)
        assert last.price == pytest.approx(0.01, abs=0.02)
    assert plan_curve_figure(points, router).axes


def test_a_log_says_nothing_of_one_choice_of_a_plan(router: l2d.Router) -> None:
    rows: Any = SimpleNamespace(file="log.sqlite")
    with pytest.raises(L2DError, match="follows a plan"):
        log_value(router, rows)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -5.0])
def test_a_price_that_is_none(router: l2d.Router, wrong: float) -> None:
    step = router.begin(world(1, 5)[0][0])
    with pytest.raises(ParameterError, match=r"^price="):
        step.answered("yes", price=wrong)
    if wrong != float("inf"):
        with pytest.raises(ParameterError, match=r"^cap="):
            router.begin(world(1, 5)[0][0], cap=wrong)


def test_a_strangers_rule_of_agreement_is_not_imported(router: l2d.Router, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    file = tmp_path / "router" / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["dataset"]["agree"] = "shutil.move"
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(L2DError, match=r"^dataset.agree: shutil.move .*--trust shutil"):
        l2d.Router.load(tmp_path / "router")
