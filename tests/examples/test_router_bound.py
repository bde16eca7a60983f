"""The bound of a router: by hand, its text, and of finished runs."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import linear_router
import numpy as np
import pytest
import torch
from bounds import weighted_zero_one_loss
from hypothesis import given
from hypothesis import strategies as st
from linear_router import LinearRouter, as_linear, check_linear, load_linear_router
from omegaconf import DictConfig
from router_bound import BoundReport, bound_report, bound_text, weighted_sample

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.core.decisions import deferral_loss
from l2d.data.sheet import write_sheet
from l2d.networks.heads import make_head
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.training.walk import train
from l2d.utils.errors import L2DError, ParameterError

MILD = ("method=mild", "method.rho.values=[2,1]")


@given(st.integers(0, 9999), st.sampled_from(["sum_others", "complement"]), st.integers(2, 5))
def test_the_way_back_to_the_deferral_loss(seed: int, kind: str, p: int) -> None:
    """Lemmas 1 and 2: from the mean zero-one loss of scores to the mean deferral loss of the same scores."""
    rng = np.random.default_rng(seed)
    costs = torch.tensor((rng.random((6, p)) < 0.5) + rng.uniform(0, 0.5, p))
    sample = weighted_sample(costs, kind, cost_scale=float(costs.max()))
    scores = torch.tensor(rng.normal(size=(6, p)))
    loss = float(weighted_zero_one_loss(scores, sample.weights).mean())
    assert sample.as_deferral_loss(loss) == pytest.approx(float(deferral_loss(scores, costs).mean()))
    assert float(sample.weights.sum(dim=1).max()) == pytest.approx(1)


def small(*overrides: str, rows: int = 60, decision: str = "argmax") -> LinearRouter:
    """A linear router by hand: the feature says which of two experts is right, weight 3 on it."""
    labels = torch.arange(rows) % 2
    costs = torch.nn.functional.one_hot(1 - labels, 2).double()
    features = torch.stack([1.0 - labels, labels.double()], dim=1)
    component = check(compose(overrides or MILD)).method
    method = make(component, costs=costs, num_classes=2, decision=decision)
    return LinearRouter(features, 3 * torch.eye(2, dtype=torch.float64), costs, method)


def report_of(router: LinearRouter, **given: Any) -> BoundReport:
    usual = {"rho": None, "rewards": None, "delta": 0.05, "ceiling": 6.0, "draws": 200, "seed": 0}
    return bound_report(router, **usual | given)


def test_bound_of_a_router_done_by_hand() -> None:
    """Two experts, one right: c̄ = 1 for it and 0 for the other, so C = 1, m_j = 30, X_j = 1, F = 3√2. All margins are 3 ≥ ρ: no
    empirical loss. Corollary 4.2: R̂ = √2·3√2/60·√(30/4 + 30/1), times 8 at fixed ρ. Uniform up to 6 it doubles, ρ = (2, 1) are
    rounded to n = (2, 3), and with the constant 4 the sum is less again."""
    report = report_of(small())
    assert (report.counts.tolist(), report.norms.tolist()) == ([30, 30], [1, 1])
    assert (report.error, report.worst, report.training_loss) == (0, 1, 0)
    rademacher, confidence = math.sqrt(37.5) / 10, 3 * math.sqrt(math.log(40) / 120)
    union = math.log(40) + 2 * math.log(math.pi**2 / 6) + 2 * math.log(2 * 3)
    uniform = 3 * math.sqrt(union / 120) - confidence
    parts = {"ρ fixed": (8 * rademacher, 0.0), "uniform in ρ": (16 * rademacher, uniform)}
    parts["uniform in ρ, constant 4"] = (8 * rademacher, uniform)
    for title, (complexity, extra) in parts.items():
        for form in ("X_j", "X"):
            bound = report.rows[f"Corollary 4.2, {form}: {title}"]
            found = [bound.empirical, bound.complexity, bound.confidence, bound.uniform]
            assert found == pytest.approx([0.0, complexity, confidence, extra], rel=1e-6)
        assert report.rows[f"Theorem 4.1: {title}"].complexity <= complexity * 1.01
    # Equal counts and norms: the best ρ with the same sum is 1.5 for both.
    ratio = report.rademacher["Corollary 4.2, X_j"] / report.best_complexity
    assert ratio == pytest.approx(math.sqrt((30 / 4 + 30 / 1) / (60 / 1.5**2)))
    assert report_of(small(), seed=1).rademacher["Theorem 4.1"] != report.rademacher["Theorem 4.1"]


def test_the_text_shows_the_numbers() -> None:
    report = report_of(small())
    text = bound_text(report, small())
    for name, bound in report.rows.items():
        [line] = [line for line in text.splitlines() if line.startswith(f"{name}  ")]
        numbers = [bound.empirical, bound.complexity, bound.confidence, bound.uniform, bound.total]
        assert line.split()[-5:] == [f"{value:.4g}" for value in numbers]
    by_expert = {line.split("  ")[0]: line.split()[-2:] for line in text.splitlines()}
    assert (by_expert["ρ_j"], by_expert["X_j"]) == (["2", "1"], ["1", "1"])
    assert "VACUOUS" in text
    assert f"{60 * report.least.total**2:.2g} such points" in text  # without empirical loss it falls as 1/√m
    assert "0.3333·C(x)" in text  # ρ is unequal
    assert f"{report.rademacher['Theorem 4.1']:.4g} ± {1.959964 * report.rademacher_error:.1g}" in text
    assert "·C(x)" not in bound_text(report_of(small(), rho=[1.0]), small())


def test_a_bound_below_1_is_shown_as_a_deferral_loss() -> None:
    """48/m·√(1.25·m/2) at m = 40,000 is .19. With C = 2 and units of 3, and ½ added, the loss is 6 times the bound plus ½. A bound
    that is no better than the worst routing says nothing."""
    report = report_of(small(rows=40000), draws=5)
    complexity = report.rows["Corollary 4.2, X: ρ fixed"].complexity
    assert complexity == pytest.approx(48 / 40000 * math.sqrt(25000), rel=1e-6)
    report = replace(report, sample=replace(report.sample, scale=2.0, unit=3.0, constant=0.5))
    text = bound_text(report, small())
    assert f"{6 * report.least.total + 0.5:.4f}" in text
    assert "VACUOUS" not in text
    assert "VACUOUS" in bound_text(replace(report, worst=report.least.total), small())


def test_what_the_text_warns_of() -> None:
    right = small()
    report = report_of(replace(right, head=-right.head))
    assert report.error == report.rows["Theorem 4.1: ρ fixed"].empirical == 1
    assert "More points would not help" in bound_text(report, right)
    router = small(decision="posterior")
    assert "agree on 100.00%" in bound_text(report_of(router), router)
    assert "From a log" not in bound_text(report_of(router), router)
    assert "From a log" in bound_text(report_of(router), replace(router, from_log=True))


def test_complement_rewards() -> None:
    """Costs above 1 are divided. Costs 0 and ½ have rewards 1 and ½, so weights ⅔ and ⅓: at worst only the less rewarded expert is
    taken."""
    right = small()
    dear, cheap = (replace(right, costs=costs) for costs in (right.costs + 0.5, right.costs / 2))
    assert report_of(dear, rewards="complement").sample.unit == 1.5
    assert report_of(cheap, rewards="complement").worst == pytest.approx(2 / 3)


@pytest.mark.slow
def test_bad_options_and_methods_without_margins() -> None:
    with pytest.raises(ParameterError, match=r"^ceiling=1\.5: .*2"):
        report_of(small(), ceiling=1.5)
    with pytest.raises(ParameterError, match=r"^rho=\[1\.0, 2\.0, 3\.0\]: 3 .* 2"):
        report_of(small(), rho=[1.0, 2.0, 3.0])
    router = small("method=ce")
    with pytest.raises(ParameterError, match=r"^rewards: CrossEntropy .* --rewards"):
        report_of(router)
    with pytest.raises(ParameterError, match=r"^rho: CrossEntropy "):
        report_of(router, rewards="complement")
    assert report_of(router, rewards="complement", rho=[0.1], ceiling=0.1).rho.tolist() == [0.1, 0.1]
    assert report_of(router, rewards="complement", rho=[1.0, 2.0]).rho.tolist() == [1, 2]
    assert report_of(small("method=cost_sensitive", "method.rho.values=[2,1]")).rho.tolist() == [2, 1]


class Small(torch.nn.Module):
    def __init__(self, head: str) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
        self.head = make_head(head, 4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_head_and_features_are_the_scores(head: str) -> None:
    """The split's own rows, in their order, without dropout; a cosine head has features and rows of norm 1."""
    torch.manual_seed(0)
    network, source, places = Small(head), torch.randn(10, 3), torch.tensor([7, 2, 5])
    split: Any = SimpleNamespace(source=source, rows=places, costs=torch.ones(3, 2))
    method = small().method
    router = as_linear(network, method, split)
    with torch.no_grad():
        np.testing.assert_allclose(router.scores, network.eval()(source[places]), atol=1e-6)
    if head == "cosine":
        np.testing.assert_allclose(router.features.norm(dim=1), 1)
        assert float(router.head.norm()) == pytest.approx(math.sqrt(2))
    component = check(compose(["method=cost_regression"])).method
    learner = make(component, costs=torch.ones(3, 2), num_classes=2, decision="argmax")
    for other, p, name in ((learner, 2, "CostRegression"), (method, 3, "CompSum")):
        with pytest.raises(L2DError, match=rf"^{name}: .*linear"):
            check_linear(network, other, p)


class Checked(Exception):
    pass


def test_no_table_is_written_and_every_row_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run's config says; data that were moved are looked for where they are now."""
    found: dict[str, Any] = {}

    def noted(config: dict[str, Any], trust: tuple[str, ...]) -> None:
        found.update(config, trust=trust)
        raise Checked

    saved = {"experts": {"table": "mine.csv", "seed": 1}, "sampling": "over", "data_dir": "a"}
    monkeypatch.setattr(RunFolder, "config", lambda _: dict(saved))
    monkeypatch.setattr(linear_router, "check", noted)
    with pytest.raises(Checked):
        load_linear_router(tmp_path, {"data_dir": "b"}, ("mine",))
    changed = {"experts": {"table": None, "seed": 1}, "sampling": "none", "data_dir": "b"}
    assert found == {**changed, "trust": ("mine",)}


def slow_margin_loss(trained: LinearRouter, rho: list[float]) -> float:
    costs, scores = trained.costs.numpy(), trained.scores.numpy()
    rewards = costs.sum(axis=1, keepdims=True) - costs
    total = 0.0
    for i, k in np.ndindex(*costs.shape):
        margin = scores[i, k] - max(score for j, score in enumerate(scores[i]) if j != k)
        total += rewards[i, k] * min(1.0, max(0.0, 1 - margin / rho[k]))
    return total / float(rewards.sum(axis=1).max()) / len(costs)


@pytest.mark.full
@pytest.mark.measured
def test_bound_of_a_trained_run(tiny: Callable[..., DictConfig]) -> None:
    """The router that is loaded is the one that was scored, with averaged weights and without its auxiliary head. The empirical loss
    is the mean of loops over the training split, and a run that is not finished is refused."""
    experiment = check(tiny("checkpoint=best", "recipe.ema=0.5", "aux=label", "sampling=over"))
    train(experiment)
    folder = RunFolder.of(experiment.plain).path
    linear, router = load_linear_router(folder, {}), Router.load(folder)
    test = make(experiment.dataset).load(experiment.data_dir).test_inputs
    with np.load(folder / "test.npz") as saved, torch.no_grad():
        np.testing.assert_allclose(router.network.eval()(test), saved["scores"], atol=1e-5)
    assert len(linear.costs) == 1293  # each training row once, whatever sampling drew
    rho: Any = linear.method.rho
    empirical = report_of(linear, draws=20).rows["Theorem 4.1: ρ fixed"].empirical
    assert empirical == pytest.approx(slow_margin_loss(linear, rho.tolist()))
    unfinished = folder.with_name("seed=9")
    shutil.copytree(folder, unfinished)
    (unfinished / "metrics.json").unlink()
    with pytest.raises(L2DError, match="not finished"):
        load_linear_router(unfinished, {})


@pytest.mark.full
@pytest.mark.measured
def test_bound_on_a_log(tiny: Callable[..., DictConfig], tmp_path: Path) -> None:
    """From completed costs; a method that takes the log as it is has no cost of every expert."""
    rng = np.random.default_rng(0)
    asked, right = rng.random(120) < 0.5, rng.random(120) < 0.7
    cells = {"x": rng.normal(size=120).tolist()}
    for k, name in enumerate("ab"):
        cells[f"correct_{name}"] = [float(right[i]) if asked[i] == k else None for i in range(120)]
    write_sheet(tmp_path / "log.parquet", cells)
    log = ["dataset=table", f"dataset.path={tmp_path / 'log.parquet'}"]
    folders = {}
    for method in ("mild", "one_vs_all"):
        experiment = check(tiny(*log, f"method={method}"))
        train(experiment)
        folders[method] = RunFolder.of(experiment.plain).path
    router = load_linear_router(folders["mild"], {})
    assert router.from_log
    assert math.isfinite(report_of(router, rewards="complement", rho=[1.0], draws=5).least.total)
    with pytest.raises(L2DError, match="method=one_vs_all"):
        load_linear_router(folders["one_vs_all"], {})
