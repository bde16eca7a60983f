"""What `l2d theory` prints and writes, and how it refuses."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from l2d.analysis.theory.evaluate import describe, evaluate, sample_of
from l2d.analysis.theory.trained import Trained, from_router, rebuild
from l2d.commands.theory_options import DEFAULTS, HELP
from omegaconf import DictConfig
from tests.running import train

from l2d.analysis.theory.bounds import zero_one_loss
from l2d.commands.theory import main
from l2d.config import compose, to_plain
from l2d.core.deferral import deferral_loss
from l2d.methods.comp_sum import CompSum
from l2d.networks.heads import attach_aux, make_head
from l2d.routing.make import make
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError

Call = Callable[..., str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Run the command in an empty folder; what it prints, or its one line of refusal."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        refusal = ""
        try:
            main(list(arguments))
        except SystemExit as stopped:
            refusal = str(stopped.code)  # a text: printed to stderr, status 1
        assert "\n" not in refusal
        return refusal or capsys.readouterr().out

    return run


def rows(text: str) -> dict[str, list[str]]:
    """A printed table by the first word of its lines."""
    return {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if "  " in line}


def test_help_names_every_command_and_key(call: Call) -> None:
    assert call("--help").strip() == HELP == call().strip()
    for command, keys in DEFAULTS.items():
        assert f"\n  {command} " in HELP
        for key in keys:
            assert key in HELP.split(f"\n  {command} ", 1)[1], key


def test_the_counterexample(call: Call) -> None:
    text = call("consistency", "p=[0.55,0.45]", "rho=[1,0.3]")
    found = rows(text)
    assert found["best (argmax p)"][-2:] == ["1", "0.0000"]
    assert found["argmax f, the paper's"][-2:] == ["2", "0.1000"]
    assert found["posterior, argmax p̂"][-2:] == ["1", "0.0000"]
    assert "counterexample" in text
    assert "0.5385" in text  # .7/1.3


def test_where_argmax_is_right_nothing_is_claimed(call: Call) -> None:
    text = call("consistency", "p=[0.2,0.5,0.3]", "rho=[1,1,1]")
    assert "counterexample" not in text
    assert "here argmax f is the best expert" in text


def test_random_cases_follow_the_seed(call: Call) -> None:
    one = call("consistency", "random=4", "experts=4", "seed=3")
    assert len(one.splitlines()) == 2 + 4 + 2
    assert one == call("consistency", "random=4", "experts=4", "seed=3")
    assert one != call("consistency", "random=4", "experts=4", "seed=4")


def test_pictures_are_written_where_they_are_told(call: Call, tmp_path: Path) -> None:
    assert "simplex.png" in call("simplex", "size=10")
    assert "regions.svg" in call("simplex", "size=4", "rho=[1,2,3]", "p=[0.2,0.3,0.5]", "out=regions.svg")
    text = call("figure1", "points=100", "steps=5", "offset=5")
    assert "MILD, offset 5, argmax" in text
    assert "optimum" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure1.png", "regions.svg", "simplex.png"]
    assert (tmp_path / "simplex.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["proof"], "error: proof: unknown command; choose one of bound, consistency, simplex, figure1"),
        (["consistency", "q=1"], "error: q=1: unknown; consistency takes p=, rho="),
        (["consistency", "p=[1,0]"], "error: p=[1, 0]: must be a list of positive numbers"),
        (["consistency", "p=[0.5,0.4]"], "error: p=[0.5, 0.4]: the sum is 0.9, not 1"),
        (["consistency", "p=[0.5,0.3,0.2]"], "error: p=[0.5, 0.3, 0.2]: 3 values for 2 margins"),
        (["consistency", "rho=[1,-1]"], "error: rho=[1, -1]: must be"),
        (["consistency", "p=[0.5"], "error: p=[0.5: not a value that can be read"),
        (["consistency", "random=-1"], "error: random=-1: must be a whole number, at least 0"),
        (["consistency", "random=true"], "error: random=true: must be a whole number"),
        (["simplex", "rho=[1,2]"], "error: rho=[1, 2]: the simplex is for three experts"),
        (["simplex", "out=there.txt"], "error: out=there.txt: must end in .png, .pdf or .svg"),
        (["simplex", "out=nowhere/it.png"], "error: out=nowhere/it.png: there is no folder nowhere"),
        (["figure1", "offset=high"], "error: offset=high: must be a number"),
        (["figure1", "points=100", "steps=2", "offset=-1"], "error: method.rho.offset=-1: rho of expert"),
        (["bound"], "error: bound: takes one run's folder"),
        (["bound", "nowhere"], "error: nowhere: no such folder"),
        (["bound", "."], "error: .: not a run's folder (no config.yaml)"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(call: Call, tmp_path: Path, arguments: list[str], words: str) -> None:
    assert call(*arguments).startswith(words)
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 9999), st.sampled_from(["sum_others", "complement"]), st.integers(2, 5))
def test_the_way_back_to_the_deferral_loss(seed: int, kind: str, p: int) -> None:
    """Lemmas 1 and 2: scale·unit·(mean zero-one loss) + constant is the mean deferral loss of the same scores."""
    rng = np.random.default_rng(seed)
    costs = torch.tensor((rng.random((6, p)) < 0.5) + rng.uniform(0, 0.5, p))
    sample = sample_of(costs, kind, cost_scale=float(costs.max()))
    scores = torch.tensor(rng.normal(size=(6, p)))
    loss = float(zero_one_loss(scores, sample.weights).mean())
    assert sample.scale * sample.unit * loss + sample.constant == pytest.approx(
        float(deferral_loss(scores, costs).mean())
    )
    assert float(sample.weights.sum(dim=1).max()) == pytest.approx(1)


MILD = ("method=mild", "method.rho.values=[2,1]")
OPTIONS = DEFAULTS["bound"]


def small(*overrides: str, rows: int = 60, decision: str = "argmax") -> Trained:
    """A linear router by hand: the feature says which of two experts is right, weight 3 on it."""
    labels = torch.arange(rows) % 2
    costs = torch.nn.functional.one_hot(1 - labels, 2).double()
    features = torch.stack([1.0 - labels, labels.double()], dim=1)
    method = make(compose(overrides or MILD).method, costs=costs, num_classes=2, decision=decision)
    return Trained(features, 3 * torch.eye(2, dtype=torch.float64), costs, method, {})


def test_bound_of_a_router_done_by_hand() -> None:
    """Two experts, one right: c̄ = 1 for it and 0 for the other, so C = 1, m_j = 30, X_j = 1, F = 3√2. All margins are 3 ≥ ρ: no
    empirical loss. Corollary 4.2: 4√2·2·3√2/60·√(30/4 + 30/1)."""
    report = evaluate(small(), OPTIONS)
    assert report.counts.tolist() == [30, 30]
    assert report.norms.tolist() == [1, 1]
    bound = report.rows["Corollary 4.2, X_j"]["ρ fixed"]
    assert bound.empirical == 0
    assert bound.complexity == pytest.approx(48 / 60 * math.sqrt(37.5), rel=1e-6)
    assert report.rows["Theorem 4.1"]["ρ fixed"].complexity <= bound.complexity * 1.01
    assert (report.error, report.worst, report.training_loss) == (0, 1, 0)
    assert "VACUOUS" in describe(report, small())


def test_bound_of_many_points_is_not_vacuous() -> None:
    """48/m·√(1.25·m/2) at m = 40,000 is .19; the same router fails with its scores the other way round."""
    report = evaluate(small(rows=40000), OPTIONS | {"draws": 5})
    assert report.rows["Corollary 4.2, X"]["ρ fixed"].complexity == pytest.approx(
        48 / 40000 * math.sqrt(25000), rel=1e-6
    )
    text = describe(report, small())
    assert "not vacuous" in text
    assert "VACUOUS" not in text
    right = small()
    wrong = evaluate(Trained(right.features, -right.head, right.costs, right.method, {}), OPTIONS)
    assert wrong.error == 1
    assert wrong.rows["Theorem 4.1"]["ρ fixed"].empirical == 1
    assert "More points would not help" in describe(wrong, right)


def test_posterior_decisions_are_named() -> None:
    trained = small(decision="posterior")
    assert "they agree on 100.00% of S" in describe(evaluate(trained, OPTIONS), trained)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 1.5}, "delta=1.5"),
        ({"ceiling": 1.5}, "ceiling=1.5: must be at least the largest rho, 2"),
        ({"rho": [1.0]}, r"^rho=\[1.0\]: 1 values for 2 experts"),
        ({"rho": "high"}, "^rho="),
        ({"rewards": "none"}, "rewards=none: unknown; choose one of sum_others, complement"),
    ],
)
def test_bad_options_of_the_bound(options: dict[str, object], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        evaluate(small(), OPTIONS | options)


def test_methods_without_margins_are_told_which() -> None:
    trained = small("method=ce")
    with pytest.raises(L2DError, match="rewards: CrossEntropy has none; give rewards=sum_others"):
        evaluate(trained, OPTIONS)
    with pytest.raises(L2DError, match="rho: CrossEntropy has no margins; give rho=1"):
        evaluate(trained, OPTIONS | {"rewards": "complement"})
    assert evaluate(trained, OPTIONS | {"rewards": "complement", "rho": 1}).rho.tolist() == [1, 1]


class Small(torch.nn.Module):
    def __init__(self, head: str) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
        self.head = make_head(head, 4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_head_and_features_are_the_scores(head: str) -> None:
    """Of the split's own rows, in their order, without dropout; a cosine head has features and rows of norm 1."""
    torch.manual_seed(0)
    network, source, rows = Small(head), torch.randn(10, 3), torch.tensor([7, 2, 5])
    split: Any = SimpleNamespace(source=source, rows=rows, costs=torch.ones(3, 2))
    router: Any = SimpleNamespace(network=network, averaged=None, method=small().method)
    trained = from_router(router, SimpleNamespace(train=split), {"trainer": {"accelerator": "cpu"}})  # type: ignore[arg-type]
    with torch.no_grad():
        np.testing.assert_allclose(trained.scores, network.eval()(source[rows]), atol=1e-6)
    other = Small(head)  # of averaged weights, and with a second head: what it is judged by
    attach_aux(other, 5)
    router.averaged = other
    trained = from_router(router, SimpleNamespace(train=split), {"trainer": {"accelerator": "cpu"}})  # type: ignore[arg-type]
    with torch.no_grad():
        np.testing.assert_allclose(trained.scores, other.eval()(source[rows]), atol=1e-6)
    if head == "cosine":
        np.testing.assert_allclose(trained.features.norm(dim=1), 1)
        assert float(trained.head.norm()) == pytest.approx(math.sqrt(2))
    router.method.num_outputs = 3
    with pytest.raises(L2DError, match="method=odd: its outputs are not one linear score per expert"):
        from_router(router, SimpleNamespace(train=split), {"method": {"name": "odd"}})  # type: ignore[arg-type]


def slow_margin_loss(trained: Trained, rho: list[float]) -> float:
    costs, scores = trained.costs.numpy(), trained.scores.numpy()
    rewards = costs.sum(axis=1, keepdims=True) - costs
    total = 0.0
    for i, k in np.ndindex(*costs.shape):
        margin = scores[i, k] - max(score for j, score in enumerate(scores[i]) if j != k)
        total += rewards[i, k] * min(1.0, max(0.0, 1 - margin / rho[k]))
    return total / float(rewards.sum(axis=1).max()) / len(costs)


def of_before(config: dict[str, Any]) -> dict[str, Any]:
    """As runs had it that were made before some keys came."""
    recipe = {key: value for key, value in config["recipe"].items() if key not in ("ema", "patience")}
    return {key: value for key, value in config.items() if key not in ("aux", "aux_weight")} | {"recipe": recipe}


@pytest.mark.slow
def test_bound_of_a_trained_run(tiny: Callable[..., DictConfig], call: Call) -> None:
    """The router that comes back is the one that was scored, its features and head give its outputs on the training split, the printed
    empirical loss is that of loops over the split, and a run that is not finished is refused."""
    for checkpoint in ("best", "last"):
        cfg = tiny(f"checkpoint={checkpoint}")
        train(cfg)
        folder = RunFolder.of(to_plain(cfg)).path
        RunFolder(folder).write_config(of_before(RunFolder(folder).config()))
        data, router, config = rebuild(folder, {})
        trained = from_router(router, data, config)
        with torch.no_grad(), np.load(folder / "test.npz") as saved:
            np.testing.assert_allclose(router.network(data.test.inputs), saved["scores"], atol=1e-5)
            np.testing.assert_allclose(router.network(data.train.inputs), trained.scores, atol=1e-4)
    text = call("bound", str(folder), "draws=20")
    assert isinstance(trained.method, CompSum)
    assert f" {slow_margin_loss(trained, trained.method.rho.tolist()):.4g} " in text
    assert f"m = {len(trained.costs)} points" in text
    assert "VACUOUS" in text
    unfinished = folder.with_name("seed=9")
    shutil.copytree(folder, unfinished)
    (unfinished / "metrics.json").unlink()
    assert "this run is not finished" in call("bound", str(unfinished))
    shutil.rmtree(folder / "checkpoints")
    assert "has no checkpoints/last.ckpt" in call("bound", str(folder))
