"""LDAM on the cheapest expert."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.methods.cross_entropy import LDAM, ldam_loss, ldam_margins


def test_margins_and_loss_by_hand() -> None:
    """m = (16, 1): fourth roots 1/2 and 1; the rarest gets the largest margin, .5."""
    assert ldam_margins(torch.tensor([16.0, 1.0]), 0.5).tolist() == pytest.approx([0.25, 0.5])
    # Cosines (.5, .5), margin .1 for the target, s = 10: logits 4 and 5 → log(1 + e).
    loss = ldam_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), torch.tensor([0.1, 0.4]), 10.0)
    assert float(loss) == pytest.approx(math.log(1 + math.e), rel=1e-6)


@given(st.integers(2, 5), st.integers(0, 9999))
def test_against_loops(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, margins, t = rng.uniform(-1, 1, p), rng.uniform(0, 0.5, p), int(rng.integers(p))
    logits = [30 * (z[k] - (margins[t] if k == t else 0)) for k in range(p)]
    slow = math.log(sum(math.exp(v - logits[t]) for v in logits))
    fast = ldam_loss(torch.tensor(z)[None], torch.tensor([t]), torch.tensor(margins), 30.0)
    assert float(fast) == pytest.approx(slow, rel=1e-9)


def test_built_from_the_cheapest_counts() -> None:
    costs = torch.cat([torch.tensor([[0.0, 1.0]]).repeat(16, 1), torch.tensor([[1.0, 0.0]])])
    for margin, scale in ((0.5, 30.0), (0.2, 10.0)):
        method = LDAM(costs=costs, num_classes=10, decision="argmax", max_margin=margin, scale=scale)
        assert method.margins.tolist() == pytest.approx([margin / 2, margin])
        assert method.head == "cosine"
        expected = math.log(1 + math.exp(scale * margin))
        assert float(method.loss(torch.zeros(1, 2), costs[-1:], torch.zeros(1))) == pytest.approx(expected, rel=1e-6)
