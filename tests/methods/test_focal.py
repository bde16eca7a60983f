"""The focal loss on the cheapest expert."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.methods.cross_entropy import Focal, focal_loss


def test_by_hand() -> None:
    """Scores (log 3, 0): p = (3/4, 1/4). γ = 2: (1/4)²·log(4/3) for expert 1, (3/4)²·log 4 for expert 2."""
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    for gamma in (1.0, 2.0):
        method = Focal(costs=costs, num_classes=10, decision="argmax", gamma=gamma)
        loss = method.loss(torch.tensor([[math.log(3), 0.0]]).repeat(2, 1), costs, torch.zeros(2))
        torch.testing.assert_close(loss, torch.tensor([math.log(4 / 3) / 4**gamma, (3 / 4) ** gamma * math.log(4)]))


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 5))
def test_against_loops(p: int, seed: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    f, t = rng.normal(size=p), int(rng.integers(p))
    chance = math.exp(f[t]) / sum(math.exp(v) for v in f)
    slow = -((1 - chance) ** gamma) * math.log(chance)
    assert float(focal_loss(torch.tensor(f)[None], torch.tensor([t]), gamma)) == pytest.approx(slow, rel=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_gradients_where_all_is_learned(gamma: float) -> None:
    """p_t = 1 to the last digit: (1 − p_t)^γ has no slope there for γ < 1, the loss has slope 0."""
    scores = torch.tensor([[200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    focal_loss(scores, torch.tensor([0, 0]), gamma).sum().backward()
    assert scores.grad is not None
    assert scores.grad[0].abs().max() < 1e-12
    assert float(scores.grad[1, 0]) < 0
