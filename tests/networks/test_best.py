"""method=auto: the choice among estimators, and the small network that is one of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from l2d.networks.estimators import best as module
from l2d.networks.estimators.best import Best, losses_of
from l2d.networks.estimators.estimator import Estimator, FitRows
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.estimators.perceptron import DECAY, Adam, Perceptron
from l2d.utils.errors import ParameterError

NO_LABELS = torch.full((600,), -1)


def by_sign(n: int = 600, *, labels: bool = False) -> FitRows:
    """Expert 1 is right where the first of three columns is positive, expert 2 elsewhere; 5 % by chance."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(n, 3))
    first = (inputs[:, 0] > 0) ^ (rng.random(n) < 0.05)
    right = np.stack([first, ~first], axis=1).astype(np.float64)
    shown = torch.from_numpy((inputs[:, 0] > 0).astype(np.int64)) if labels else torch.full((n,), -1)
    return FitRows(torch.from_numpy(inputs).float(), torch.from_numpy(right), shown)


def estimates(estimator: Estimator, rows: FitRows) -> Tensor:
    with torch.no_grad():
        estimator.fit(rows)
        found: Tensor = estimator(rows.inputs)
    return found


def test_losses_by_hand() -> None:
    """Row 1: the first expert seems to cost 1 − .6 + .1 = .5, the second 1 − .7 + .3 = .6, so it is chosen, and costs 1 + .1."""
    rows = FitRows(torch.zeros(2, 1), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), NO_LABELS[:2], torch.tensor([0.1, 0.3]))
    assert losses_of(torch.tensor([[0.6, 0.7], [0.1, 0.9]]), rows).tolist() == pytest.approx([1.1, 1.3])
    free = FitRows(rows.inputs, rows.right, rows.labels)
    assert losses_of(torch.tensor([[0.6, 0.7], [0.1, 0.9]]), free).tolist() == [0.0, 1.0]
    log = FitRows(rows.inputs, torch.tensor([[torch.nan, 1.0], [1.0, torch.nan]]), rows.labels, rows.prices)
    assert losses_of(torch.tensor([[0.6, 0.7], [0.1, 0.9]]), log).tolist() == pytest.approx([0.09, 0.81])


@pytest.mark.parametrize("asked", [0, 1])
def test_an_expert_whom_hardly_anybody_asked(asked: int) -> None:
    """A part of the rows, or all on which candidates are compared, may know nothing of it."""
    rows = by_sign(300, labels=True)
    unknown = torch.full((300, 1), torch.nan, dtype=torch.float64)
    unknown[:asked] = 1.0
    rows = replace(rows, right=torch.cat([rows.right, unknown], dim=1))
    found, _ = Best(60.0).left_out(rows)
    assert len(found) > 3
    assert all(torch.isfinite(one).all() for one in found.values())


@pytest.mark.slow
def test_a_good_candidate_is_chosen_and_its_estimates_are_used(tmp_path: Path) -> None:
    rows, auto = by_sign(), Best(60.0)
    found = estimates(auto, rows)
    assert (found.argmax(dim=1) == rows.right.argmax(dim=1)).float().mean() > 0.9
    auto.keep(tmp_path)
    _, *lines = (tmp_path / "candidates.txt").read_text().splitlines()
    # There are no labels, and all rows are different.
    assert {line.split(",")[0] for line in lines[-2:]} == {"not tried: linear_plugin", "not tried: category_table"}
    losses = {line.split()[0]: float(line.split()[1]) for line in lines if "±" in line}
    assert {*losses} == {*auto.names} - {"linear_plugin", "category_table", "mix by label"}
    assert 0.03 < min(losses.values()) < 0.12
    [chosen] = [line.split() for line in lines if line.endswith("chosen")]
    assert chosen[0] == auto.names[int(auto.chosen)]
    assert float(chosen[2]) <= float(chosen[4])  # more than the least, and its standard error


@pytest.mark.slow
def test_a_router_is_rebuilt_from_its_weights() -> None:
    rows = by_sign(labels=True)
    network = EstimatorNetwork(Best(60.0))
    network.fit(rows)
    assert isinstance(network.estimator, Best)
    assert network.estimator.comparison.count("not tried") == 1  # a table: all rows are different
    again = EstimatorNetwork(Best(60.0))
    again.load_state_dict(network.state_dict())
    assert torch.equal(again(rows.inputs), network(rows.inputs))


class Fixed(Estimator):
    """Says the same of every row; `says` is what a subclass says."""

    says: tuple[float, float]

    def fit(self, rows: FitRows) -> None: ...

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tensor(self.says).expand(len(inputs), 2)


class First(Fixed):
    says = (0.9, 0.1)


class Second(Fixed):
    says = (0.1, 0.9)


class Refuses(Fixed):
    def fit(self, rows: FitRows) -> None:  # noqa: ARG002
        raise ParameterError("", "cannot")


def test_the_simplest_within_one_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second expert costs less by more than an error; prices turn it round. Equal candidates: the first counts."""
    monkeypatch.setattr(module, "MIXED", {})
    right = torch.tensor([[0.0, 1.0]] * 70 + [[1.0, 0.0]] * 30)
    rows = FitRows(torch.zeros(100, 1), right, NO_LABELS[:100])
    dear = FitRows(rows.inputs, right, rows.labels, torch.tensor([0.0, 0.9]))
    for kinds, given, name in (
        ({"a": First, "b": Second}, rows, "b"),
        ({"a": First, "b": Second}, dear, "a"),
        ({"a": Second, "b": Second}, rows, "a"),
        ({"a": Refuses, "b": First, "c": Second}, rows, "c"),
    ):
        monkeypatch.setattr(module, "SINGLE", kinds)
        monkeypatch.setattr(module, "Perceptron", Refuses)
        auto = Best(60.0)
        auto.fit(given)
        assert auto.names[int(auto.chosen)] == name


def test_without_time_the_first_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIXED", {})
    monkeypatch.setattr(module, "SINGLE", {"a": First, "b": Second})
    auto = Best(1e-9)
    auto.fit(FitRows(torch.zeros(9, 1), torch.tensor([[0.0, 1.0]] * 9), NO_LABELS[:9]))
    assert auto.names[int(auto.chosen)] == "a"
    assert [line.split()[2] for line in auto.comparison.splitlines()[-2:]] == ["b,", "network,"]


@pytest.mark.parametrize("labels", [False, True])
def test_the_small_network_learns(labels: bool) -> None:
    rows = by_sign(labels=labels)
    network = Perceptron()
    found = estimates(network, rows)
    assert (found.argmax(dim=1) == rows.right.argmax(dim=1)).float().mean() > 0.9
    assert len(network.table) == (2 if labels else 0)
    again = estimates(Perceptron(), rows)
    assert torch.equal(found, again)  # and the caller's random numbers are left alone
    hidden = FitRows(rows.inputs, rows.right.where(torch.rand(600, 2) < 0.5, torch.nan), rows.labels)
    assert (estimates(Perceptron(), hidden).argmax(dim=1) == rows.right.argmax(dim=1)).float().mean() > 0.85


def test_adam_is_torchs() -> None:
    ours, theirs = torch.tensor([1.0, -2.0]), torch.tensor([1.0, -2.0], requires_grad=True)
    mine, torchs = Adam([ours]), torch.optim.AdamW([theirs], lr=0.1, weight_decay=DECAY)
    for gradient in ([0.5, -1.0], [0.1, 0.3], [-0.7, 0.0]):
        mine.step([torch.tensor(gradient)], 0.1)
        theirs.grad = torch.tensor(gradient)
        torchs.step()
    torch.testing.assert_close(ours, theirs.detach())
