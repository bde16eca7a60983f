"""One-vs-all, and the confidence threshold and the cascade that decide by it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.methods.one_vs_all import OneVsAll, first_confident, one_vs_all_loss
from l2d.utils.errors import ParameterError

# Mean costs 1, .5 and .75: expert 2 is the best, then 3, then 1. The largest, 2, is the scale.
COSTS = torch.tensor([[2.0, 0.5, 1.0], [0.0, 0.5, 0.5]])


def method(decision: str = "argmax", costs: torch.Tensor = COSTS, **changes: Any) -> OneVsAll:
    arguments: dict[str, Any] = {"rule": "argmax", "threshold": 0.5, "order": None, **changes}
    return OneVsAll(costs=costs, num_classes=10, decision=decision, **arguments)


def logits(*confidences: float) -> torch.Tensor:
    return torch.tensor(confidences, dtype=torch.float64).logit()[None]


def test_loss_by_hand() -> None:
    """Targets 1 − c/2: (0, ¾, ½). Scores (0, log 3, 0), σ = (½, ¾, ½): log 2 + (¾ log(4/3) + ¼ log 4) + log 2."""
    loss = method().loss(torch.tensor([[0.0, math.log(3), 0.0]]), COSTS[:1], torch.zeros(1))
    assert float(loss) == pytest.approx(2 * math.log(2) + 0.75 * math.log(4 / 3) + 0.25 * math.log(4))


def test_expected_costs_by_hand() -> None:
    """(1 − σ)·2."""
    torch.testing.assert_close(
        method().expected_costs(logits(0.5, 0.75, 0.9)), torch.tensor([[1.0, 0.5, 0.2]]).double()
    )


def test_the_posterior_decides_without_the_rule() -> None:
    """Experts 1 and 3 are confident enough, and 3 more than 1."""
    outputs = logits(0.6, 0.2, 0.9)
    cascade, posterior = (method(decision, rule="cascade", order=[1, 2, 3]) for decision in ("argmax", "posterior"))
    for built, own in ((cascade, 0), (posterior, 2)):
        assert built.decide(outputs).tolist() == [own]
        assert built.decide(outputs, "posterior").tolist() == [2]
        assert built.decide(outputs, "argmax").tolist() == [0]
    assert (cascade.by_argmax, posterior.by_argmax) == (False, True)


@given(st.integers(2, 5), st.integers(0, 9999))
def test_against_loops(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, rewards = rng.normal(size=p), rng.random(p)
    slow = 0.0
    for k in range(p):
        confidence = 1 / (1 + math.exp(-f[k]))
        slow -= rewards[k] * math.log(confidence) + (1 - rewards[k]) * math.log(1 - confidence)
    assert float(one_vs_all_loss(torch.tensor(f)[None], torch.tensor(rewards)[None])) == pytest.approx(slow, rel=1e-9)


@given(st.integers(2, 5), st.integers(0, 9999))
def test_at_the_minimiser(p: int, seed: int) -> None:
    """Over several y at one x the mean loss is stationary at σ(f_k) = 1 − E[c_k]/scale: the argmax has the least expected cost, and the
    posterior is each expert's share of the expected rewards."""
    rng = np.random.default_rng(seed)
    costs = torch.tensor(rng.random((6, p)) * 3)
    built = method(costs=costs)
    chance = torch.tensor(rng.dirichlet(np.ones(6)))
    expected = (chance[:, None] * costs).sum(0)
    scale = max(1.0, float(costs.max()))
    f = (1 - expected / scale).logit()[None].requires_grad_()
    (chance * built.loss(f.expand(6, p), costs, torch.zeros(6))).sum().backward()
    assert f.grad is not None
    assert f.grad.abs().max() < 1e-6
    assert built.decide(f.detach()).tolist() == [int(expected.argmin())]
    share = (1 - expected / scale) / (1 - expected / scale).sum()
    torch.testing.assert_close(built.posterior(f.detach())[0], share)
    mass = (chance[:, None] * built.mass(costs)).sum(0)
    torch.testing.assert_close(mass / mass.sum(), share, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "confidences", "chosen"),
    [
        ("argmax", (0.9, 0.6, 0.8), 0),
        ("threshold", (0.9, 0.6, 0.8), 1),  # the best single expert reaches .5, so nobody else is looked at
        ("threshold", (0.9, 0.4, 0.8), 0),  # it does not: the most confident
        ("threshold", (0.9, 0.5, 0.8), 1),  # .5 itself reaches it
        ("cascade", (0.9, 0.6, 0.8), 1),  # order 2, 3, 1
        ("cascade", (0.9, 0.4, 0.8), 2),  # where the threshold rule goes on to 1
        ("cascade", (0.3, 0.1, 0.2), 0),  # nobody reaches .5: the most confident
    ],
)
def test_decisions_by_hand(rule: str, confidences: tuple[float, ...], chosen: int) -> None:
    assert method(rule=rule).decide(logits(*confidences)).tolist() == [chosen]
    assert method("posterior", rule=rule).decide(logits(*confidences)).tolist() == [int(np.argmax(confidences))]


def test_the_threshold_and_the_order_matter() -> None:
    outputs = logits(0.9, 0.6, 0.8)
    assert method(rule="cascade", threshold=0.7).decide(outputs).tolist() == [2]
    assert method(rule="cascade", order=[1, 2, 3]).decide(outputs).tolist() == [0]
    assert method(rule="cascade", order=[3, 1, 2]).decide(outputs).tolist() == [2]
    assert method(rule="threshold", order=[1, 2, 3]).decide(outputs).tolist() == [1]  # which has no order
    # The known costs alone say 2, 3, 1; expert 3 was asked the hard queries, say.
    assert method().order.tolist() == [2, 3, 1]
    built = method(mean_costs=torch.tensor([0.9, 0.5, 0.4]).double())
    assert (built.order.tolist(), built.best.tolist()) == ([3, 2, 1], [3])
    assert method(mean_costs=torch.tensor([0.9, 0.5, 0.4]), order=[1, 2, 3]).order.tolist() == [1, 2, 3]


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 1))
def test_cascade_against_loops(p: int, seed: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    f, order = 2 * rng.normal(size=(5, p)), rng.permutation(p)
    fast = first_confident(torch.tensor(f), torch.tensor(order), threshold)
    for row, chosen in zip(f, fast.tolist(), strict=True):
        reached = [k for k in order if 1 / (1 + math.exp(-row[k])) >= threshold]
        assert chosen == (reached[0] if reached else int(row.argmax()))


@pytest.mark.parametrize("order", [[1, 2], [0, 1, 2], [1, 1, 2], [1, 2, 4]])
def test_the_order_names_each_expert_once(order: list[int]) -> None:
    with pytest.raises(ParameterError) as caught:
        method(order=order)
    assert (caught.value.parameter, caught.value.value) == ("order", order)
