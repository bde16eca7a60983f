"""c_k(x, y) = 1[g_k(x) ≠ y] + β_k, and what is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.costs import cheapest, check_costs, expert_errors, noisy, paid
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream


def test_hand_derived() -> None:
    """Label 3: expert 1 says 3 (right), expert 2 says 1 (wrong). Label 1: the other way round."""
    errors = expert_errors(torch.tensor([[3, 1], [3, 1]]), torch.tensor([3, 1]))
    assert errors.tolist() == [[0, 1], [1, 0]]


@given(st.integers(0, 999), st.floats(0, 2), st.sampled_from(["multiplicative", "additive"]))
def test_noise_against_loops(seed: int, noise: float, kind: str) -> None:
    """z is drawn row by row, expert by expert; costs never get below 0, and no noise is no change."""
    costs = torch.rand(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z = stream(seed, "z").standard_normal(12)
    found = noisy(costs, noise, kind, stream(seed, "z"))
    for i in range(4):
        for k in range(3):
            c, draw = float(costs[i, k]), float(z[3 * i + k])
            wanted = c * (1 + noise * draw) if kind == "multiplicative" else c + noise * draw
            assert float(found[i, k]) == pytest.approx(max(0.0, wanted))


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([[0.0], [1.0]], "2"),
        ([[0.0, 1.0], [float("nan"), 1.0]], "nan in row 1 for expert 1"),
        ([[0.0, 1.0], [1.0, -0.5], [-1.0, 1.0]], r"^costs: 2 .* -0\.5 in row 1 for expert 2$"),
        ([[0.0, float("inf")]], "inf in row 0"),
        ([0.0, 1.0], "costs: "),
        ([], "costs: "),
    ],
)
def test_bad_costs(costs: list[list[float]], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        check_costs(torch.tensor(costs))


def test_cheapest_and_paid() -> None:
    assert cheapest(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.5]])).tolist() == [1, 0, 2]
    costs = torch.tensor([[0.7, 1.2, 0.0], [1.7, 0.2, 1.0]])
    assert paid(costs, torch.tensor([1, 0])).tolist() == pytest.approx([1.2, 1.7])
