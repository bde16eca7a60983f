"""Routers whose prices differ from query to query: what they expect, and budgets."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.running import assembled, folder_of, train

import l2d
from l2d.config import compose
from l2d.data.sheet import write_sheet
from l2d.router.router import Router
from l2d.router.trained import decide_inputs, takes_prices
from l2d.training import baselines
from l2d.utils.errors import ParameterError

N = 600
QUICKLY = {"recipe.epochs": 1, "progress": False}


def priced_table(folder: Path, seed: int = 0) -> Path:
    """The large model is right more often; its price grows with the length of the query. Prices in dollars."""
    rng = np.random.default_rng(seed)
    x, length = rng.normal(size=N), rng.integers(1, 10, N).astype(float)
    right = rng.random((N, 2)) < np.stack([np.full(N, 0.9), 1 / (1 + np.exp(-2 * x))], axis=1)
    path, large, small = folder / f"table{seed}.parquet", *right.T.astype(float)
    columns = {"x": x, "length": length, "correct_large": large, "correct_small": small}
    columns |= {"price_large": 0.001 * length, "price_small": np.full(N, 0.0005)}
    write_sheet(path, {name: column.tolist() for name, column in columns.items()})
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("priced")
    overrides = ["dataset=table", f"dataset.path={priced_table(folder)}", "cost=columns", "cost.error_price=0.02"]
    config = compose([*overrides, "method=linear", f"runs_dir={folder}", "evaluation=cross_validate"])
    metrics = train(config)
    assert metrics["guarded"]["test"]["gain"] > 0
    return folder_of(config)


def test_a_router_expects_prices(run: Path) -> None:
    router = Router.load(run)
    short, long = router.route([{"x": 0.0, "length": 2.0}, {"x": 0.0, "length": 9.0}])
    assert short.expected_prices == pytest.approx({"large": 0.002, "small": 0.0005}, rel=0.05)
    assert long.expected_prices == pytest.approx({"large": 0.009, "small": 0.0005}, rel=0.05)
    assert (short.expert, long.expert) == ("large", "small")  # .4 more often right is worth .008 dollars


def test_a_router_expects_errors(run: Path) -> None:
    """The expected cost is the error plus the price over 2 cents, within a budget times its factor."""
    query = [{"x": 0.5, "length": 5.0}]
    for router in (Router.load(run), Router.load(run).at(budget=0.0012)):
        choice: Any = router.route(query)[0]
        for name, cost in choice.expected_costs.items():
            price = router.description.factor * choice.expected_prices[name] / 0.02
            assert choice.price_weight == pytest.approx(router.description.factor / 0.02)
            assert choice.expected_errors[name] == pytest.approx(cost - price, abs=1e-5)
        assert 0.05 < choice.expected_errors["large"] < 0.15
    assert str(router.operating_point).startswith("budget $0.0012 ")


def test_a_budget_is_kept_on_new_queries(run: Path) -> None:
    router = Router.load(run)
    inside = router.at(budget=0.0012, confidence=0.95)
    point: Any = inside.operating_point
    assert point.spend <= 0.0012
    assert router.operating_point is None
    file = priced_table(run.parent, seed=1)
    paid, free = (
        [(choice.expected_prices or {})[choice.expert] for choice in one.route_file(file)] for one in (inside, router)
    )
    assert len(paid) == N
    assert np.mean(paid) == pytest.approx(point.spend, rel=0.15)
    assert np.mean(paid) < 0.0013 < 0.0015 < np.mean(free)


def test_a_list_of_prices_takes_their_place(run: Path) -> None:
    router = Router.load(run).at({"large": 0.0, "small": 1.0})
    choices = router.route([{"x": 3.0, "length": 9.0}, {"x": -3.0, "length": 1.0}])
    assert {choice.expert for choice in choices} == {"large"}
    point: Any = router.at(budget=0.01).operating_point
    assert point.factor == 1


def test_prices_and_budget_have_one_unit(run: Path) -> None:
    """Both dollars. Large costs half a cent, small a tenth of that: within $.002, at most a third of the queries go to large."""
    router = Router.load(run)
    listed = {"large": 0.005, "small": 0.0005}
    inside = router.at(listed, budget=0.002)
    point: Any = inside.operating_point
    choices = inside.route_file(priced_table(run.parent, seed=1))
    assert choices[0].expected_prices == pytest.approx(listed)
    assert choices[0].price_weight == pytest.approx(point.factor / 0.02)
    share = np.mean([choice.expert == "large" for choice in choices])
    assert 0.2 < share < 0.4
    assert point.spend == pytest.approx(0.0005 + 0.0045 * share, rel=0.1)
    assert str(point).startswith("budget $0.002 ")
    # A wrong answer costs 2 cents: at a price of 3, large is never worth it.
    dear = router.at({"large": 0.03, "small": 0.0}).route([{"x": -3.0, "length": 1.0}])
    assert [choice.expert for choice in dear] == ["small"]


def test_scores_take_prices_in_the_unit_of_training(run: Path) -> None:
    """An error costs 2 cents: the price of large counts a quarter of an error."""
    router = Router.load(run)
    queries, errors = [{"x": 0.0, "length": 2.0}] * 3, np.tile([0.0, 1.0], (3, 1))
    score = router.score(queries, errors=errors, prices={"large": 0.005, "small": 0.0})
    assert (score.deferral_loss, score.mean_price) == (0.25, 0.25)
    assert "deferral loss     $0.005000" in str(score)
    assert "costs $0.02" in str(score)
    with pytest.raises(ParameterError, match=r"^prices: missing"):
        router.score(queries, errors=errors)  # without prices, the dearest would look best
    cheap = router.at({"large": 1.0, "small": 0.0})
    compared = router.compare(cheap, queries, errors=errors, prices=[0.005, 0.0])
    assert compared.difference == -0.75
    assert str(compared).startswith("-$0.015000  (")


@pytest.mark.parametrize("method", ["mild", "linear"])
def test_scores_count_prices_as_the_router_does(method: str) -> None:
    """Also if the method learned them. With cost.scale=0 they are 0, given or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    given: dict[str, Any] = {"errors": (X > 0).astype(float), "prices": rng.random((200, 2))}
    router = l2d.fit(X, **given, method=method, options=QUICKLY)
    for refuse in (router.score, partial(router.compare, router)):
        with pytest.raises(ParameterError, match=r"^prices: missing"):
            refuse(X, errors=given["errors"])
    score = router.score(X, **given)
    assert score.mean_price == pytest.approx(given["prices"][range(200), router.decide(X)].mean())
    free = l2d.fit(X, **given, method=method, options={**QUICKLY, "cost.scale": 0})
    losses = [free.score(X, errors=given["errors"]).deferral_loss, free.score(X, **given).deferral_loss]
    assert losses == [given["errors"][range(200), free.decide(X)].mean()] * 2
    if method == "mild":
        with pytest.raises(ParameterError, match=r"^budget: .*method=cost_regression"):
            router.within(0.01)


def test_a_budget_says_that_it_is_for_latency_too(run: Path) -> None:
    router = Router.load(run)
    router = replace(router, config={**router.config, "cost": {**router.config["cost"], "latency_price": 0.001}})
    late = router.at(budget=0.0012)
    assert str(late.operating_point).startswith("budget $0.0012 ")
    assert late.prices.mean_price == "mean price + latency"
    listed = router.at({"large": 0.1, "small": 0.0}, budget=0.0012)
    assert str(listed.operating_point).startswith("budget $0.0012 ")
    assert listed.prices.mean_price == "mean price"


@pytest.mark.slow
def test_a_budget_for_latency_is_not_kept_by_money_alone(run: Path, tmp_path: Path) -> None:
    router, prices = Router.load(run), {"large": 0.005, "small": 0.0005}
    router = replace(router, config={**router.config, "cost": {**router.config["cost"], "latency_price": 0.001}})
    late = router.at(budget=0.0012)
    late.save(tmp_path / "saved")
    saved = Router.load(tmp_path / "saved")
    with pytest.raises(ParameterError, match=r"^prices: .*latency"):
        saved.at(prices)
    assert (takes_prices(saved), takes_prices(router)) == (False, True)
    listed = saved.at(prices, budget=0.0012)
    assert takes_prices(listed)
    assert listed.operating_point == router.at(prices, budget=0.0012).operating_point


@pytest.mark.full
def test_an_exported_router_decides_by_them(run: Path, tmp_path: Path) -> None:
    router = Router.load(run)
    router.export(tmp_path / "router.pt2")
    program = torch.export.load(tmp_path / "router.pt2").module()
    for n in (1, 7):
        rows = torch.rand(n, 2) * 5
        assert program(rows)[0].tolist() == decide_inputs(router, rows).tolist()


@pytest.mark.parametrize("noise", ["cost.noise_kind=additive", "cost.noise_kind=multiplicative"])
def test_noise_is_on_errors_alone(noise: str, tmp_path: Path) -> None:
    """Prices are added only to decide; the costs that are learned from are not negative."""
    overrides = ["dataset=table", f"dataset.path={priced_table(tmp_path)}", "cost=columns", "cost.noise=0.5", noise]
    splits = assembled(compose([*overrides, "method=cost_regression"]))
    assert splits.train.without_prices
    assert (splits.train.costs >= 0).all()
    assert (splits.train.whole_costs - splits.train.costs).min() >= 0.0005 - 1e-12


def test_what_a_router_is_compared_with_does_not_depend_on_its_method(tmp_path: Path) -> None:
    overrides = ["dataset=table", f"dataset.path={priced_table(tmp_path)}", "cost=columns", "cost.error_price=0.02"]
    first, second = (assembled(compose([*overrides, f"method={name}"])) for name in ("linear", "mild"))
    assert baselines.simple_scores(first) == baselines.simple_scores(second)


def test_a_saved_router_keeps_them(run: Path, tmp_path: Path) -> None:
    router = Router.load(run)
    router.save(tmp_path / "saved")
    queries = [{"x": 0.5, "length": 3.0}]
    assert Router.load(tmp_path / "saved").route(queries) == router.route(queries)
    inside = router.at(budget=0.0012)
    inside.save(tmp_path / "inside")
    assert Router.load(tmp_path / "inside").route(queries) == inside.route(queries)
