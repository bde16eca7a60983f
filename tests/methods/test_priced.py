"""By way of the label, or an estimate per expert: against loops, by hand, and with prices that come later."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.core.decisions import argmax_last
from l2d.methods.cross_entropy import CrossEntropy
from l2d.methods.method import Evidence
from l2d.methods.priced import CERTAIN, CostRegression, Plugin, Priced, label_loss, mean_by_label
from l2d.utils.errors import ParameterError

# Label 0: expert 1 is right twice, expert 2 never. Label 1: expert 1 once of three times, expert 2 twice. One row of no known label.
ERRORS = torch.tensor([[0, 1], [0, 1], [1, 0], [1, 0], [0, 1], [1, 1]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1, 1, -1])
PRICES = torch.tensor([0.5, 0.25], dtype=torch.float64)
EVIDENCE = Evidence(ERRORS, PRICES, LABELS)


def plugin(evidence: Evidence = EVIDENCE, num_classes: int = 2, smoothing: float = 0.0) -> Plugin:
    costs = evidence.errors + evidence.prices
    method = Plugin(costs=costs, num_classes=num_classes, decision="argmax", smoothing=smoothing)
    method.learn(evidence)
    return method


def regression(evidence: Evidence = EVIDENCE, costs: torch.Tensor | None = None, **changes: Any) -> CostRegression:
    arguments: dict[str, Any] = {"by_label": False, "label_weight": 1.0, "smoothing": 0.0, **changes}
    costs = evidence.errors + evidence.prices if costs is None else costs
    method = CostRegression(costs=costs, num_classes=2, decision="argmax", **arguments)
    method.learn(evidence)
    return method


def knowing(*labels: int, num_classes: int = 2) -> torch.Tensor:
    return 40.0 * torch.nn.functional.one_hot(torch.tensor(labels), num_classes).double()


def drawn(seed: int, n: int, p: int, num_classes: int) -> Evidence:
    rng = np.random.default_rng(seed)
    errors, labels = rng.integers(0, 2, (n, p)).astype(float), rng.integers(-1, num_classes, n)
    labels[0] = 0  # one at least is known
    return Evidence(torch.tensor(errors), torch.tensor(rng.random(p)), torch.tensor(labels))


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(2, 4), st.integers(1, 5), st.sampled_from([0.0, 0.5, 3.0]), st.integers(0, 999))
def test_means_against_loops(n: int, p: int, num_classes: int, smoothing: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, labels = rng.normal(size=(n, p)), rng.integers(-1, num_classes, n)
    found = mean_by_label(torch.tensor(values), torch.tensor(labels), num_classes, smoothing)
    for k in range(p):
        overall = sum(values[:, k]) / n
        for y in range(num_classes):
            there = [values[i, k] for i in range(n) if labels[i] == y]
            rows = len(there) + smoothing
            assert float(found[y, k]) == pytest.approx((sum(there) + smoothing * overall) / rows if rows else overall)


def test_means_and_label_loss_by_hand() -> None:
    """All rows: (3/6, 4/6). Label 0 has two rows, label 1 three, label 2 none: without smoothing, the mean of all; with one row's
    worth of it, (0 + ½)/3 and (2 + ⅔)/3 for label 0."""
    plain = [[0, 1], [2 / 3, 1 / 3], [1 / 2, 2 / 3]]
    assert mean_by_label(ERRORS, LABELS, 3, 0).tolist() == [pytest.approx(row) for row in plain]
    assert mean_by_label(ERRORS, LABELS, 3, 1)[0].tolist() == pytest.approx([0.5 / 3, (2 + 2 / 3) / 3])
    assert mean_by_label(ERRORS, LABELS, 3, 1)[2].tolist() == pytest.approx([1 / 2, 2 / 3])
    # Chances (¾, ¼): −log of the label's; nothing to lose, and nothing to learn, where it is unknown.
    logits = torch.tensor([[math.log(3), 0.0]]).repeat(3, 1).requires_grad_()
    loss = label_loss(logits, torch.tensor([0, 1, -1]))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4), 0])
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad[2].tolist() == [0, 0]
    assert logits.grad[0].tolist() == pytest.approx([-0.25, 0.25])


def test_plugin_by_hand() -> None:
    """Expected costs: label 0, (0 + ½, 1 + ¼); label 1, (⅔ + ½, ⅓ + ¼); at chances of ½ each, their mean."""
    method = plugin()
    for difference, chosen in ((0.99, 0), (1.01, 1)):  # for label 0 a price difference of 1 is the border
        method.reprice(torch.tensor([difference, 0.0]))
        assert method.decide(knowing(0)).tolist() == [chosen]
    method.reprice(PRICES)
    outputs = torch.cat([knowing(0, 1), torch.zeros(1, 2)])
    expected = [[0.5, 1.25], [2 / 3 + 0.5, 1 / 3 + 0.25], [1 / 3 + 0.5, 2 / 3 + 0.25]]
    assert method.expected_costs(outputs).tolist() == [pytest.approx(row, rel=1e-6) for row in expected]
    assert method.decide(outputs).tolist() == [0, 1, 0]
    assert method.num_outputs == 2
    loss = method.loss(torch.tensor([[math.log(3), 0.0]]), torch.rand(1, 2), torch.tensor([1]))
    assert loss.tolist() == pytest.approx([math.log(4)])


@given(st.integers(2, 4), st.integers(1, 5), st.integers(0, 999))
def test_plugin_against_loops(p: int, num_classes: int, seed: int) -> None:
    evidence = drawn(seed, 12, p, num_classes)
    method = plugin(evidence, num_classes, smoothing=1.0)
    logits = np.random.default_rng(seed).normal(size=(3, num_classes))
    means = mean_by_label(evidence.errors, evidence.labels, num_classes, 1.0).tolist()
    found = method.expected_costs(torch.tensor(logits))
    for i, row in enumerate(logits):
        total = sum(math.exp(z) for z in row)
        for k in range(p):
            slow = sum(math.exp(z) / total * means[y][k] for y, z in enumerate(row)) + float(evidence.prices[k])
            assert float(found[i, k]) == pytest.approx(slow, rel=1e-5)


def test_regression_by_hand() -> None:
    """Costs (½, 5/4): the errors are 0 and 1, the targets 1 and 0. At σ = (¾, ½) the loss is log(4/3) + log 2, the expected costs
    ¼ + ½ and ½ + ¼, of which ties go to the last."""
    method, outputs = regression(), torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    loss = method.loss(outputs, torch.tensor([[0.5, 1.25]]).double(), torch.zeros(1))
    assert loss.tolist() == pytest.approx([math.log(4 / 3) + math.log(2)])
    assert method.expected_costs(outputs).tolist() == [[0.75, 0.75]]
    assert method.decide(outputs).tolist() == [1]
    assert method.num_outputs == 2


@given(st.integers(2, 4), st.sampled_from([1.0, 3.0]), st.booleans(), st.integers(0, 999))
def test_the_loss_is_least_at_the_true_chances(p: int, largest: float, by_label: bool, seed: int) -> None:
    """Over several y at one x, the gradient with respect to each f_k vanishes where σ(·) = 1 − E[error_k]/scale, also for errors
    that are not 0 or 1; there the expected costs are E[error_k] + β_k. By the label or not: f makes up for what that says."""
    rng = np.random.default_rng(seed)
    errors, prices = torch.tensor(largest * rng.random((6, p))), torch.tensor(rng.random(p))
    evidence = Evidence(errors, prices, torch.tensor([0, 1, 1, 0, -1, 1]))
    method = regression(evidence, by_label=by_label, smoothing=1.0)
    chance = torch.tensor(rng.dirichlet(np.ones(6)))
    expected = (chance[:, None] * errors).sum(0)
    scale = max(1.0, float(errors.max()))
    f = (1 - expected / scale).logit()[None]
    if by_label:
        classifier = torch.tensor(rng.normal(size=(1, 2)))
        says = torch.softmax(classifier, 1) @ method.right_given_label.double()
        f = torch.cat([f - says.logit(), classifier], dim=1)
    f.requires_grad_()
    losses = method.loss(f.expand(6, -1), errors + prices, torch.full((6,), -1))
    (chance * losses).sum().backward()
    assert f.grad is not None
    assert f.grad.abs().max() < 1e-6
    found = method.expected_costs(f.detach())[0]
    torch.testing.assert_close(found, expected + prices, rtol=1e-5, atol=1e-5)
    assert method.decide(f.detach()).tolist() == [int((expected + prices).argmin())]


def test_the_label_says_where_it_begins_and_learns_from_the_costs() -> None:
    """f = 0 and a sure classifier: the plugin's estimates, ⅔ and ⅓ for label 1; 0 and 1 for label 0, as near as a logit may go."""
    method = regression(by_label=True)
    outputs = torch.cat([torch.zeros(2, 2), knowing(0, 1)], dim=1)
    found = (method.expected_costs(outputs) - PRICES).tolist()
    assert found == [pytest.approx([1e-4, 1 - 1e-4]), pytest.approx([2 / 3, 1 / 3], rel=1e-6)]
    assert method.num_outputs == 4
    smooth = regression(by_label=True, smoothing=1.0).right_given_label[0]  # one row more, with errors (½, ⅔)
    assert smooth.tolist() == pytest.approx([1 - 0.5 / 3, 1 - (2 + 2 / 3) / 3])
    # Without its own loss: a row where expert 1 is right, as with label 0, speaks for label 0.
    method = regression(by_label=True, label_weight=0.0)
    outputs = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    method.loss(outputs, torch.tensor([[0.5, 1.25]]).double(), torch.tensor([-1])).sum().backward()
    assert outputs.grad is not None
    assert float(outputs.grad[0, 2]) < -0.1 < 0.1 < float(outputs.grad[0, 3])


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_labels_own_loss_by_hand(weight: float) -> None:
    """Label 1, chances of ½: log 2, and 0 where it is unknown. The label says ½·1 + ½·⅓ of expert 1 and ½·0 + ½·⅔ of expert 2:
    f = 0 has log losses −log ⅔ where it is right, −log(1 − ⅓) where it is wrong."""
    method = regression(by_label=True, label_weight=weight)
    costs = torch.tensor([[0.5, 1.25]]).double().repeat(2, 1)
    loss = method.loss(torch.zeros(2, 4).double(), costs, torch.tensor([1, -1]))
    assert loss.tolist() == pytest.approx([-2 * math.log(2 / 3) + weight * math.log(2), -2 * math.log(2 / 3)], rel=1e-6)


def methods(evidence: Evidence) -> list[Priced]:
    return [plugin(evidence), regression(evidence), regression(evidence, by_label=True, smoothing=1.0)]


@settings(max_examples=15)
@given(st.integers(0, 999))
def test_other_prices_later_are_other_prices_from_the_start(seed: int) -> None:
    evidence = drawn(seed, 20, 3, 2)
    other = torch.tensor(np.random.default_rng(seed + 1).random(3) * 2)
    outputs = torch.randn(30, 5, generator=torch.Generator().manual_seed(seed))
    moved = Evidence(evidence.errors, other, evidence.labels)
    for late, early in zip(methods(evidence), methods(moved), strict=True):
        given_outputs = outputs[:, : late.num_outputs]
        before = late.expected_costs(given_outputs)
        late.reprice(other)
        after = late.expected_costs(given_outputs)
        torch.testing.assert_close(after, early.expected_costs(given_outputs))
        torch.testing.assert_close(after - before, (other - evidence.prices).float().expand_as(after))
        torch.testing.assert_close(late.expected_errors(given_outputs), before - evidence.prices.float())
        assert torch.equal(late.decide(given_outputs), argmax_last(-after))
        late.reprice(torch.tensor([9.0, 0.0, 9.0]))
        assert set(late.decide(given_outputs).tolist()) == {1}


def test_prices_of_rows_are_further_outputs() -> None:
    """Label 1's rows: errors (⅔, ⅓). The network expects prices of .3 and .1."""
    prices = torch.stack([torch.arange(6) / 10, torch.zeros(6)], dim=1).double()
    evidence = Evidence(ERRORS, prices, LABELS)
    for method in methods(evidence):
        own = knowing(1).float() if isinstance(method, Plugin) else torch.zeros(1, method.num_outputs)
        outputs = torch.cat([own, torch.tensor([[0.3, 0.1]])], dim=1)
        errors = method.expected_errors(own)
        assert errors is not None
        torch.testing.assert_close(method.expected_errors(outputs), errors)
        torch.testing.assert_close(method.expected_costs(outputs), errors + torch.tensor([0.3, 0.1]))
        torch.testing.assert_close(method.expected_costs(own), errors)  # in training there are none
        torch.testing.assert_close(method.expected_prices(outputs), torch.tensor([[0.3, 0.1]]))
        assert method.expected_prices(own) is None
        method.rescale(2.0)
        torch.testing.assert_close(method.expected_costs(outputs), errors + torch.tensor([0.6, 0.2]))
        method.reprice(torch.tensor([0.0, 0.5]))
        torch.testing.assert_close(method.expected_costs(outputs), errors + torch.tensor([0.0, 0.5]))
    assert plugin(evidence).expected_costs(knowing(1)).tolist() == [pytest.approx([2 / 3, 1 / 3], rel=1e-6)]


def test_validation_loss_leaves_expected_prices_out() -> None:
    """Costs of validation rows have their prices; those that are expected come off again."""
    evidence = Evidence(ERRORS, torch.full((6, 2), 0.25).double(), LABELS)
    graded = regression(evidence)
    own, labels = torch.tensor([[1.0, -1.0]]), torch.zeros(1)
    bare = graded.loss(own, torch.tensor([[1.0, 0.0]]), labels)
    priced = torch.cat([own, torch.full((1, 2), 0.25)], dim=1)
    torch.testing.assert_close(graded.loss(priced, torch.tensor([[1.25, 0.25]]), labels), bare)


def test_other_methods_have_their_prices_for_good() -> None:
    costs = ERRORS + PRICES
    with pytest.raises(ParameterError, match=r"^prices: .*cost_regression"):
        CrossEntropy(costs=costs, num_classes=2, decision="argmax", weighted=False, beta=1.0).reprice(PRICES)


def test_no_labels() -> None:
    unlabelled = Evidence(ERRORS, PRICES, torch.full((6,), -1))
    for build in (lambda: plugin(unlabelled, 0), lambda: regression(unlabelled, by_label=True)):
        with pytest.raises(ParameterError, match=r"dataset\.label=") as caught:
            build()
        assert caught.value.parameter == ""  # the method as a whole
    assert regression(unlabelled).decide(torch.tensor([[3.0, 0.0]])).tolist() == [0]  # which goes by none
    inexact = torch.tensor([0.1, 0.3], dtype=torch.float64)  # in 32 bits, which is no noise
    assert float(regression(Evidence(ERRORS, inexact, LABELS)).least) == 0


@pytest.mark.parametrize("by_label", [False, True])
def test_noise_on_the_costs(by_label: bool) -> None:
    """Noise takes errors below 0 and above 1, also where the evidence is clean: the loss is least at the mean of noisy errors."""
    noisy = torch.tensor([[0.3, 1.85], [0.5, 1.05]], dtype=torch.float64)  # errors (−0.2, 1.6) and (0, 0.8)
    method = regression(costs=noisy, by_label=by_label, label_weight=0.0)
    assert [float(method.least), float(method.most)] == pytest.approx([-0.2, 1.6])
    means = torch.tensor([[-0.1, 1.2]], dtype=torch.float64)
    f = torch.logit(1 - (means + 0.2) / 1.8)
    if by_label:
        says = method.right_given_label[:1].double().clamp(CERTAIN, 1 - CERTAIN)
        f = torch.cat([f - torch.logit(says), knowing(0)], 1)
    f.requires_grad_()
    losses = method.loss(f.expand(2, -1), noisy, torch.tensor([0, -1]))
    assert (losses > 0).all()
    losses.sum().backward()
    assert f.grad is not None
    assert f.grad[0, :2].abs().max() < 1e-6
    assert method.expected_costs(f.detach())[0].tolist() == pytest.approx([-0.1 + 0.5, 1.2 + 0.25], abs=1e-6)


def test_held_out_errors_beyond_the_training_costs_are_in_range() -> None:
    """From −½ to 3, though the training costs are 0 and 1. What lies outside counts as the nearest end."""
    evidence = Evidence(torch.tensor([[-0.5, 3.0]]), torch.zeros(2), torch.tensor([0]))
    method = regression(evidence, costs=torch.tensor([[0.0, 1.0]]))
    assert (float(method.least), float(method.most)) == (-0.5, 3.0)
    assert method.right(torch.tensor([[-0.5, 3.0], [-0.75, 3.5]])).tolist() == [[1, 0], [1, 0]]


def test_a_class_that_the_evidence_lacks_is_as_all_rows() -> None:
    """(3/6, 4/6), whatever the smoothing; nothing is divided by 0."""
    for smoothing in (0.0, 2.0):
        found = plugin(num_classes=3, smoothing=smoothing).expected_costs(knowing(2, num_classes=3))
        assert found.tolist() == [pytest.approx([0.5 + 0.5, 2 / 3 + 0.25], rel=1e-6)]


def test_half_precision_around_it_makes_nothing_infinite() -> None:
    """Under autocast a matrix product is in half precision, in which a chance of .9999 is 1 and its logit infinite."""
    labels = torch.arange(3).repeat_interleave(4000)
    errors = (labels[:, None] != torch.arange(3)).double()
    weights = {"label_weight": 1.0, "smoothing": 1.0}
    method = CostRegression(costs=errors, num_classes=3, decision="argmax", by_label=True, **weights)
    method.learn(Evidence(errors, torch.zeros(3), labels))
    outputs = torch.cat([torch.zeros(3, 3), 20 * torch.eye(3)], dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = method.loss(outputs, errors[::4000].float(), torch.arange(3))
        assert method.expected_costs(outputs).dtype == torch.float32
    assert loss.isfinite().all()
    torch.testing.assert_close(loss, method.loss(outputs, errors[::4000].float(), torch.arange(3)))
