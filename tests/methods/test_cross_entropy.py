"""CE and CWCE on the cheapest expert."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.methods.cross_entropy import CrossEntropy, effective_number, inverse_frequency_weights, weighted_cross_entropy

# The cheapest is expert 1 three times and expert 2 once; row 2 is a tie, which goes to the first.
COSTS = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])


def make(weighted: bool) -> CrossEntropy:
    return CrossEntropy(costs=COSTS, num_classes=10, decision="argmax", weighted=weighted, beta=1.0)


def test_weights_by_hand() -> None:
    """m = (3, 1): inverses (1/3, 1), sum 4/3, times p = 2: (1/2, 3/2)."""
    assert inverse_frequency_weights(torch.tensor([3.0, 1.0])).tolist() == pytest.approx([0.5, 1.5])
    assert make(True).weights.tolist() == pytest.approx([0.5, 1.5])
    assert make(False).weights.tolist() == [1, 1]
    # β = ½: (1 − ½³)/(1 − ½) = 7/4 and 1, inverses 4/7 and 1, sum 11/7, times 2: 8/11 and 14/11. β = 0: all 1. β = 1: m itself.
    counts = torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert effective_number(counts, 0.5).tolist() == pytest.approx([1.75, 1])
    assert effective_number(counts, 0.0).tolist() == [1, 1]
    assert torch.equal(effective_number(counts, 1.0), counts)
    method = CrossEntropy(costs=COSTS, num_classes=10, decision="argmax", weighted=True, beta=0.5)
    assert method.weights.tolist() == pytest.approx([8 / 11, 14 / 11])


@given(st.floats(0, 0.99999), st.integers(0, 9999))
def test_effective_numbers_are_sums(beta: float, seed: int) -> None:
    """Cui et al.: E_m = 1 + β + … + β^{m−1}, so between 1 and m, and more for more rows; the weights turn that around."""
    counts = np.random.default_rng(seed).integers(1, 40, 4)
    found = effective_number(torch.tensor(counts, dtype=torch.float64), beta)
    np.testing.assert_allclose(found, [sum(beta**i for i in range(m)) for m in counts], rtol=1e-9)
    weights = inverse_frequency_weights(found)
    assert float(weights.sum()) == pytest.approx(4)
    assert int(weights[counts.argmin()] >= weights[counts.argmax()])


def test_loss_by_hand() -> None:
    """Scores (log 3, 0): −log p = log(4/3) for expert 1, log 4 for expert 2."""
    outputs = torch.tensor([[math.log(3), 0.0]]).repeat(4, 1)
    plain = torch.tensor([math.log(4 / 3)] * 3 + [math.log(4)])
    torch.testing.assert_close(make(False).loss(outputs, COSTS, torch.zeros(4)), plain)
    weighted = plain * torch.tensor([0.5, 0.5, 0.5, 1.5])
    torch.testing.assert_close(make(True).loss(outputs, COSTS, torch.zeros(4)), weighted)


@given(st.integers(2, 5), st.integers(0, 9999))
def test_against_loops(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, weights, target = rng.normal(size=(3, p)), rng.random(p) + 0.1, rng.integers(0, p, 3)
    slow = [weights[t] * (math.log(sum(math.exp(v) for v in row)) - row[t]) for row, t in zip(f, target, strict=True)]
    fast = weighted_cross_entropy(torch.tensor(f), torch.tensor(target), torch.tensor(weights))
    np.testing.assert_allclose(fast, slow)


@given(st.integers(2, 5), st.integers(0, 9999))
def test_posterior_undoes_the_weights(p: int, seed: int) -> None:
    """E[w_t (log Σ e^f − f_t)] is least at softmax(f) ∝ w·p: there the posterior must be p itself."""
    rng = np.random.default_rng(seed)
    truth = torch.tensor(rng.dirichlet(np.ones(p)) * 0.9 + 0.1 / p)
    costs = 1 - torch.eye(p)[torch.tensor(np.append(rng.integers(0, p, 20), np.arange(p)))]
    method = CrossEntropy(costs=costs, num_classes=p, decision="posterior", weighted=True, beta=1.0)
    outputs = (method.weights.double() * truth).log()[None] + 3.0
    torch.testing.assert_close(method.posterior(outputs), truth[None])
    assert method.decide(outputs).tolist() == [int(truth.argmax())]  # follows p, not w·p
