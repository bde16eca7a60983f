"""Costs of a log, completed: against scikit-learn, by hand, and on simulated logs whose truth is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SlowRidge
from tests.running import assembled, build, train

from l2d.config import compose
from l2d.core.off_policy import Logged
from l2d.core.ridge import fit_crossed
from l2d.data.sheet import write_sheet
from l2d.logs import model as logged
from l2d.logs.model import LARGE, completed, fit_chances
from l2d.networks import prices
from l2d.networks.prices import PriceModel
from l2d.utils.errors import L2DError

NAMES = ("big", "mid", "small")


def simulated(n: int = 1_500, seed: int = 0) -> tuple[dict[str, list[Any]], torch.Tensor]:
    """A log's columns, and all errors [n, 3]. The log asks one expert a row, mostly the one that is best on average."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    chance = 1 / (1 + np.exp(-np.stack([0.8 + 0 * x[:, 0], 2 * x[:, 0], -2 * x[:, 0]], axis=1)))
    right = rng.random((n, 3)) < chance
    policy = np.stack([0.5 + 0 * x[:, 1], 0.2 + 0.2 * (x[:, 1] > 0), 0.3 - 0.2 * (x[:, 1] > 0)], axis=1)
    asked = np.array([rng.choice(3, p=row) for row in policy])
    cells = {"x": x[:, 0].tolist(), "z": x[:, 1].tolist()}
    for k, name in enumerate(NAMES):
        cells[f"correct_{name}"] = [float(right[i, k]) if asked[i] == k else None for i in range(n)]
        cells[f"propensity_{name}"] = policy[:, k].tolist()
    return cells, torch.from_numpy(1.0 - right)


def written(folder: Path, cells: dict[str, list[Any]], *left_out: str) -> list[str]:
    path = folder / "log.parquet"
    write_sheet(path, {key: value for key, value in cells.items() if not key.startswith(left_out or "?")})
    return ["dataset=table", f"dataset.path={path}", "evaluation=holdout", f"runs_dir={folder}"]


@pytest.mark.parametrize("width", [1, 4])
def test_regression_is_ridge_without_a_penalty_on_the_mean(width: int) -> None:
    """Each column on the rows where it is known, the rows of other folds for what is expected of a row."""
    rng = torch.Generator().manual_seed(0)
    points = torch.cat([torch.randn(400, width - 1, generator=rng), torch.ones(400, 1)], dim=1).double()
    values = torch.randn(400, 2, generator=rng).double() + points[:, :1] * 3
    values[torch.rand(400, 2, generator=rng) < 0.5] = torch.nan
    coefficients, expected = fit_crossed(points, values)
    assert expected.isfinite().all()
    for k in range(2):
        known = ~values[:, k].isnan()
        slow = SlowRidge(10.0).fit(points[known, :-1].numpy(), values[known, k].numpy()) if width > 1 else None
        plain = float(values[known, k].mean()) if slow is None else slow.intercept_
        assert float(coefficients[-1, k]) == pytest.approx(plain, abs=1e-6)
        if slow is not None:
            assert coefficients[:-1, k].numpy() == pytest.approx(slow.coef_, abs=1e-6)
        changed = values.clone()
        row = int(torch.nonzero(known)[0])
        changed[row, k] += 100
        again = float(fit_crossed(points, changed)[1][row, k])
        assert again == pytest.approx(float(expected[row, k]), abs=1e-2 if width > 1 else 1e-9)


def priced_log(folder: Path, *more: str) -> Any:
    """A router of a log whose prices differ between rows, and are known where an expert was asked."""
    cells, _ = simulated(300)
    rng = np.random.default_rng(1)
    for name in NAMES:
        prices = rng.random(300).round(3).tolist()
        asked = [outcome is not None for outcome in cells[f"correct_{name}"]]
        cells[f"price_{name}"] = [price if was else None for price, was in zip(prices, asked, strict=True)]
    return compose([*written(folder, cells), "cost=columns", "method=linear", *more])


@pytest.mark.parametrize(("sampling", "fits"), [("none", 1), ("over", 2)])
def test_prices_of_a_log_are_fitted_once(
    sampling: str, fits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regression that judges the log has those of the prices too, unless the router learns from other rows."""
    counted: list[int] = []

    def counting(points: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        counted.append(values.shape[1])
        return fit_crossed(points, values)

    for module in (logged, prices):
        monkeypatch.setattr(module, "fit_crossed", counting)
    data, router = build(priced_log(tmp_path, f"sampling={sampling}"))
    assert len(counted) == fits
    assert isinstance(router.network.price_model, PriceModel)
    if sampling == "none":
        train = data.splits.train
        own = PriceModel.fitted(train.inputs, train.prices)
        torch.testing.assert_close(router.network.price_model.weight, own.weight)


def test_chances_of_being_asked() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4_000, 1, generator=rng).double()
    truth = torch.sigmoid(x)
    asked = torch.cat([torch.rand(4_000, 1, generator=rng) < truth, torch.ones(4_000, 1, dtype=torch.bool)], dim=1)
    ones = torch.ones(4_000, 1).double()
    shares = torch.sigmoid(fit_chances(ones, asked, 0)[0])
    assert shares[0].tolist() == pytest.approx([float(asked[:, 0].double().mean()), 1.0], abs=1e-5)
    points = torch.cat([x, ones], dim=1)
    coefficients, odds = fit_chances(points, asked, 1)
    for found in (torch.sigmoid(points @ coefficients), torch.sigmoid(odds)):
        assert (found[:, 0] - truth[:, 0]).abs().max() < 0.1
        assert (found[:, 1] > 0.999).all()


def test_inputs_that_say_nothing_of_who_is_asked_do_not_count() -> None:
    """By chance, 200 features tell 600 rows apart quite well. The weights of a log of pure chance are those of the shares."""
    rng = torch.Generator().manual_seed(1)
    points = torch.cat([torch.randn(600, 200, generator=rng), torch.ones(600, 1)], dim=1).double()
    drawn = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 600, replacement=True, generator=rng)
    asked = torch.eye(3, dtype=torch.bool)[drawn]
    found = (points @ fit_chances(points, asked, 200)[0]).softmax(dim=1)
    torch.testing.assert_close(found, asked.double().mean(dim=0).expand(600, 3))


def test_confounders_do_not_drown_among_inputs() -> None:
    """Three groups decide who is asked: .7, .2, .1 and so on. Beside 200 inputs of noise, each row has its group's shares, also by
    models that did not see it; as three of 203 inputs, the groups drown."""
    rng = torch.Generator().manual_seed(2)
    group = torch.randint(3, (1_500,), generator=rng)
    truth = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]]).double()[group]
    asked = torch.eye(3, dtype=torch.bool)[torch.multinomial(truth, 1, generator=rng)[:, 0]]
    groups, noise = torch.eye(3).double()[group], torch.randn(1_500, 200, generator=rng).double()
    ones = torch.ones(1_500, 1).double()
    points = torch.cat([noise, LARGE * groups, ones], dim=1)
    coefficients, odds = fit_chances(points, asked, 200)
    for found in ((points @ coefficients).softmax(dim=1), odds.softmax(dim=1)):
        assert (found - truth).abs().max() < 0.08
    drowned = torch.cat([noise, groups, ones], dim=1)
    found = torch.sigmoid(drowned @ fit_chances(drowned, asked, 203)[0])
    assert (found - truth).abs().mean() > 0.05


def test_completed_by_hand() -> None:
    nan = float("nan")
    known = torch.tensor([[1.0, nan], [nan, 0.5]], dtype=torch.float64)
    logged = Logged(torch.tensor([[0.5, -0.25], [0.5, 0.75]]).double(), torch.tensor([[2.0, 0.0], [0.0, 4.0]]).double())
    assert completed(known, logged, "direct").tolist() == [[1, 0], [0.5, 0.5]]
    assert completed(known, logged, "ips").tolist() == [[2, 0], [0, 2]]
    # Doubly robust: [[1.5, −0.25], [0.5, −0.25]], and .25 is added to all.
    assert completed(known, logged, "dr").tolist() == [[1.75, 0], [0.75, 0]]


@pytest.mark.parametrize("missing", ["direct", "ips", "dr"])
def test_methods_get_what_they_can_learn_from(missing: str, tmp_path: Path) -> None:
    overrides = [*written(tmp_path, simulated()[0]), f"missing={missing}"]
    as_it_is = assembled(compose([*overrides, "method=knn"]))
    completed_ = assembled(compose([*overrides, "method=tdef"]))
    asked = ~as_it_is.train.costs.isnan()
    assert asked.sum(dim=1).eq(1).all()
    assert completed_.train.costs.isfinite().all()
    assert (completed_.train.costs >= 0).all()
    if missing == "direct":
        assert torch.equal(completed_.train.costs[asked], as_it_is.train.costs[asked])
    for splits in (as_it_is, completed_):
        assert splits.propensities == "given"
        assert splits.train_costs.isfinite().all()
        for part in (splits.validation, splits.test):
            assert part.costs.isfinite().all()
            assert part.logged is not None
    torch.testing.assert_close(as_it_is.test.costs, completed_.test.costs)


@pytest.mark.full
@pytest.mark.parametrize("left_out", [(), ("propensity",)])
def test_the_value_of_a_router_covers_the_truth(left_out: tuple[str, ...], tmp_path: Path) -> None:
    """Judged from the log, with propensities given and estimated; the truth is known here."""
    cells, errors = simulated(1_500)
    overrides = [*written(tmp_path, cells, *left_out), "method=linear", "evaluation=cross_validate"]
    metrics = train(compose(overrides))
    log = metrics["log"]
    assert log["propensities"] == ("estimated" if left_out else "given")
    [file] = tmp_path.rglob("seed=0/test.npz")
    with np.load(file) as arrays:
        rows, decisions = arrays["ids"] - 1, torch.from_numpy(arrays["decisions"])
    truth = float(errors[rows].gather(1, decisions[:, None]).mean())
    for found in (log["router"]["doubly_robust"], log["router"]["snips"]):
        assert abs(found["value"] - truth) < 2.5 * found["standard_error"]
    assert "oracle" not in metrics["baselines"]
    assert metrics["confusion"] is None
    assert metrics["deferral_loss"] == pytest.approx(log["router"]["doubly_robust"]["value"])
    asked = torch.tensor([[cells[f"correct_{name}"][row] is not None for name in NAMES] for row in rows])
    assert log["policy"]["value"] == pytest.approx(float(errors[rows][asked].mean()))
    assert log["asked"] == pytest.approx(asked.double().mean(dim=0).tolist())


def test_rows_that_were_all_asked_weigh_one(tmp_path: Path) -> None:
    """Whatever the training rows say of being asked: their costs are known."""
    cells, errors = simulated()
    cells["split"] = ["train"] * 1_000 + ["test"] * 500
    for k, name in enumerate(NAMES):
        cells[f"correct_{name}"][1_000:] = (1 - errors[1_000:, k]).tolist()
    splits = assembled(compose([*written(tmp_path, cells, "propensity"), "dataset.split=split", "method=knn"]))
    logged: Any = splits.test.logged
    assert (logged.weights == 1).all()
    torch.testing.assert_close(splits.test.costs, errors[1_000:])


def test_a_log_after_complete_training_rows(tmp_path: Path) -> None:
    """Its propensities are estimated from its own rows: the weights of one expert add up to about the number of rows."""
    cells, errors = simulated()
    cells["split"] = ["train"] * 700 + ["test"] * 800
    for k, name in enumerate(NAMES):
        cells[f"correct_{name}"][:700] = (1 - errors[:700, k]).tolist()
        cells[f"price_{name}"] = [0.1 if cell is not None else None for cell in cells[f"correct_{name}"]]
    given = [*written(tmp_path, cells, "propensity"), "dataset.split=split", "method=knn", "cost=columns"]
    splits = assembled(compose(given))
    assert splits.test.logged is not None
    assert (splits.test.logged.weights.mean(dim=0) - 1).abs().max() < 0.15
    for part in (splits.test.costs, splits.test.prices):
        assert part.isfinite().all()
    torch.testing.assert_close(splits.test.prices, torch.full((800, 3), 0.1, dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("known", [True, False])
def test_propensities_are_those_of_the_rows_that_are_kept(
    known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With two of three experts, rows that asked the third are left out: what the log says of all rows is no longer true. If it says
    so of every expert, the rest follows: z > 0 gives .4 and .1 to mid and small, so .8 and .2 among them."""
    cells = simulated(3_000)[0]
    if not known:
        for name in NAMES:
            pairs = zip(cells[f"propensity_{name}"], cells[f"correct_{name}"], strict=True)
            cells[f"propensity_{name}"] = [None if outcome is None else chance for chance, outcome in pairs]
    overrides = [*written(tmp_path, cells), "dataset.experts=[mid,small]", "dataset.features=[x,z]"]
    splits = assembled(compose([*overrides, "method=knn"]))
    said = capsys.readouterr().err
    assert ("estimated anew" in said) is not known
    assert splits.propensities == ("given" if known else "estimated")
    assert splits.test.logged is not None
    assert (splits.test.logged.weights.mean(dim=0) - 1).abs().max() < 0.2
    if known:
        chances: Any = splits.test.answers.propensities
        above = splits.test.inputs[:, 1] > 0
        expected = torch.where(above[:, None], torch.tensor([0.8, 0.2]), torch.tensor([0.4, 0.6])).double()
        torch.testing.assert_close(chances, expected, atol=1e-6, rtol=0)


def test_what_needs_every_outcome(tmp_path: Path) -> None:
    overrides = written(tmp_path, simulated()[0])
    with pytest.raises(L2DError, match="extreme"):
        assembled(compose([*overrides, "cost=extreme"]))
    with pytest.raises(L2DError, match="checkpoint=best_loss: "):
        build(compose([*overrides, "method=cost_regression", "checkpoint=best_loss"]))


def test_an_expert_that_was_hardly_asked(tmp_path: Path) -> None:
    cells, _ = simulated(200)
    kept = [i for i, cell in enumerate(cells["correct_mid"]) if cell is not None][:5]
    cells["correct_mid"] = [cell if i in kept else None for i, cell in enumerate(cells["correct_mid"])]
    with pytest.raises(L2DError, match=r"^mid: .* \d times .*10"):
        assembled(compose([*written(tmp_path, cells), "method=knn"]))


@pytest.mark.full
@pytest.mark.parametrize("method", ["tdef", "cost_regression", "mix"])
def test_methods_route_better_than_the_log_did(method: str, tmp_path: Path) -> None:
    metrics = train(compose([*written(tmp_path, simulated(2_000)[0]), "recipe.epochs=8", f"method={method}"]))
    assert metrics["deferral_loss"] < metrics["log"]["policy"]["value"] - 0.05


def test_the_best_expert_of_a_cascade_is_not_the_one_that_was_asked_easy_queries(tmp_path: Path) -> None:
    """Each expert errs on the hard half (x > 0) only, b less than a. The log asks b on hard queries nine times in ten."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=2_000)
    wrong = rng.random((2_000, 2)) < np.where(x[:, None] > 0, [0.9, 0.6], 0.0)
    chance = np.stack([np.where(x > 0, 0.1, 0.9), np.where(x > 0, 0.9, 0.1)], axis=1)
    asked = rng.random(2_000) < chance[:, 1]
    cells: dict[str, list[Any]] = {"x": x.tolist()}
    for k, name in enumerate("ab"):
        cells[f"correct_{name}"] = [float(not wrong[i, k]) if asked[i] == k else None for i in range(2_000)]
        cells[f"propensity_{name}"] = chance[:, k].tolist()
    known = {name: np.mean([1 - cell for cell in cells[f"correct_{name}"] if cell is not None]) for name in "ab"}
    assert known["a"] < 0.2 < 0.5 < known["b"]
    for given in (["method=threshold"], ["method=cascade"]):
        method: Any = build(compose([*written(tmp_path, cells), *given]))[1].method
        assert (method.order.tolist(), method.best.tolist()) == ([2, 1], [2])
