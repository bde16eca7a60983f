"""c_k(x, y) = 1[g_k(x) ≠ y] + β_k, and what is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.costs import cheapest, check_costs, expert_costs, expert_prices
from l2d.errors import L2DError


def test_hand_derived() -> None:
    """Label 3: expert 1 says 3 (right), expert 2 says 1 (wrong): costs .7 and 1 + .2. Label 1: the other way round."""
    costs = expert_costs(torch.tensor([[3, 1], [3, 1]]), torch.tensor([3, 1]), torch.tensor([0.7, 0.2]))
    torch.testing.assert_close(costs, torch.tensor([[0.7, 1.2], [1.7, 0.2]]))


@given(st.integers(1, 6), st.integers(2, 5), st.integers(2, 4), st.integers(0, 999))
def test_against_loops(n: int, p: int, classes: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    predictions = torch.randint(classes, (n, p), generator=rng)
    labels = torch.randint(classes, (n,), generator=rng)
    prices = torch.rand(p, generator=rng, dtype=torch.float64)
    costs = expert_costs(predictions, labels, prices)
    for i in range(n):
        for k in range(p):
            wrong = 0.0 if int(predictions[i, k]) == int(labels[i]) else 1.0
            assert float(costs[i, k]) == wrong + float(prices[k])


def test_prices() -> None:
    coverage = [0.7, 0.2, 0.1]
    assert expert_prices(None, coverage).tolist() == [0, 0, 0]
    assert expert_prices("coverage", coverage).tolist() == coverage
    assert expert_prices([1.0, 0.6, 0.1], coverage).tolist() == [1.0, 0.6, 0.1]


@pytest.mark.parametrize(
    "prices", ["free", [1.0, 2.0], [1.0, -0.1, 0.0], [1.0, float("nan"), 0.0], [1, float("inf"), 0], ["a", 1, 2], 3]
)
def test_bad_prices_name_the_key(prices: object) -> None:
    with pytest.raises(L2DError, match=r"cost\.prices"):
        expert_prices(prices, [0.7, 0.2, 0.1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([[0.0], [1.0]], "at least 2"),
        ([[0.0, 1.0], [float("nan"), 1.0]], "nan in row 1 for expert 1"),
        ([[0.0, -0.5], [0.0, 1.0]], "-0.5 in row 0 for expert 2"),
        ([[0.0, float("inf")]], "inf in row 0"),
        ([0.0, 1.0], "examples × experts"),
        (torch.zeros(0, 2).tolist(), "shape"),
    ],
)
def test_bad_costs(costs: list[list[float]], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        check_costs(torch.tensor(costs))


def test_cheapest_takes_the_first_of_equals() -> None:
    assert cheapest(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.5]])).tolist() == [1, 0, 2]
