"""Logit adjustment on the cheapest expert, and balanced softmax as a case of it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.core.decisions import argmax_last
from l2d.methods.cross_entropy import LogitAdjustment

# The cheapest is expert 1 three times and expert 2 once.
COSTS = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])


def method(tau: float, post_hoc: bool, decision: str = "argmax", costs: torch.Tensor = COSTS) -> LogitAdjustment:
    return LogitAdjustment(costs=costs, num_classes=10, decision=decision, tau=tau, post_hoc=post_hoc)


def imbalanced(rng: np.random.Generator, p: int) -> tuple[torch.Tensor, list[int]]:
    """Costs with one cheapest expert per row, and how often each is it."""
    counts = rng.integers(1, 30, p)
    return 1 - torch.eye(p)[torch.tensor(np.repeat(np.arange(p), counts))], counts.tolist()


def test_loss_by_hand() -> None:
    """π = (3/4, 1/4), scores 0, τ = 1: softmax(log π) = π, so log(4/3) for expert 1 and log 4 for expert 2. τ = 2: π² = 9/16, 1/16 → 9/10, 1/10.

    After training (post_hoc) the loss is the plain one, log 2.
    """
    outputs, labels = torch.zeros(4, 2), torch.zeros(4)
    once = torch.tensor([math.log(4 / 3)] * 3 + [math.log(4)])
    torch.testing.assert_close(method(1.0, False).loss(outputs, COSTS, labels), once)
    twice = torch.tensor([math.log(10 / 9)] * 3 + [math.log(10)])
    torch.testing.assert_close(method(2.0, False).loss(outputs, COSTS, labels), twice)
    torch.testing.assert_close(method(2.0, True).loss(outputs, COSTS, labels), torch.full((4,), math.log(2)))
    torch.testing.assert_close(method(0.0, False).loss(outputs, COSTS, labels), torch.full((4,), math.log(2)))


def test_decision_by_hand() -> None:
    """Scores (log 2, 0): 2 > 1, expert 1. After training: 2/(3/4) < 1/(1/4), expert 2; with τ = ½: 2/√¾ > 1/√¼, expert 1 again."""
    outputs = torch.tensor([[math.log(2), 0.0]])
    assert method(1.0, False).decide(outputs).tolist() == [0]
    assert method(1.0, True).decide(outputs).tolist() == [1]
    assert method(0.5, True).decide(outputs).tolist() == [0]
    assert method(1.0, True, "posterior").decide(outputs).tolist() == [0]
    assert method(1.0, True).decide(outputs, "posterior").tolist() == [0]
    assert method(1.0, True, "posterior").decide(outputs, "argmax").tolist() == [1]


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 3))
def test_against_loops(p: int, seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    costs, counts = imbalanced(rng, p)
    f, prior = rng.normal(size=p), np.array(counts) / sum(counts)
    t = int(rng.integers(p))
    moved = [f[k] + tau * math.log(prior[k]) for k in range(p)]
    slow = -math.log(math.exp(moved[t]) / sum(math.exp(v) for v in moved))
    row = (1 - torch.eye(p))[t : t + 1]
    fast = method(tau, False, costs=costs).loss(torch.tensor(f)[None], row, torch.zeros(1))
    assert float(fast) == pytest.approx(slow, rel=1e-5, abs=1e-6)


def test_the_yaml_of_balanced_softmax() -> None:
    """Ren et al.: −log(m_t e^{f_t} / Σ_k m_k e^{f_k}), which is τ = 1. It does not depend on the defaults of logit_adjustment."""
    built = make(check(compose(["method=balanced_softmax"])).method, costs=COSTS, num_classes=10, decision="argmax")
    assert isinstance(built, LogitAdjustment)
    assert not built.post_hoc
    torch.testing.assert_close(built.shift, torch.tensor([0.75, 0.25]).log())


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 2), st.booleans())
def test_at_the_minimiser(p: int, seed: int, tau: float, post_hoc: bool) -> None:
    """E[loss] is least where softmax(f + τ log π) = p, or softmax(f) = p after training: the posterior is p there, and the decision by the
    argmax is that of p/π^τ in both."""
    rng = np.random.default_rng(seed)
    costs, counts = imbalanced(rng, p)
    truth = torch.tensor(rng.dirichlet(np.ones(p)) * 0.9 + 0.1 / p)
    built = method(tau, post_hoc, costs=costs)
    prior = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    f = (truth.log() - (0 if post_hoc else tau) * prior.log() + 3.0)[None].requires_grad_()
    every = 1 - torch.eye(p, dtype=torch.float64)
    (truth * built.loss(f.expand(p, p), every, torch.zeros(p))).sum().backward()
    assert f.grad is not None
    assert f.grad.abs().max() < 1e-6
    torch.testing.assert_close(built.posterior(f.detach())[0], truth, rtol=1e-5, atol=1e-6)
    balanced = truth / prior**tau
    if float(balanced.sort().values[-2:].diff()) > 1e-3:
        assert built.decide(f.detach()).tolist() == [int(argmax_last(balanced))]
