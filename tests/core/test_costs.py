"""c_k(x, y) = 1[g_k(x) ≠ y] + β_k, and what is refused."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.core.costs import (
    cheapest,
    check_costs,
    check_scale,
    expert_costs,
    expert_errors,
    expert_prices,
    extreme_prices,
    extreme_shares,
    noisy,
    strongest,
)
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream

NAMES = ["a", "b", "c"]


def test_hand_derived() -> None:
    """Label 3: expert 1 says 3 (right), expert 2 says 1 (wrong): costs .7 and 1 + .2. Label 1: the other way round."""
    errors = expert_errors(torch.tensor([[3, 1], [3, 1]]), torch.tensor([3, 1]))
    assert errors.tolist() == [[0, 1], [1, 0]]
    costs = expert_costs(errors, torch.tensor([0.7, 0.2]).double())
    torch.testing.assert_close(costs, torch.tensor([[0.7, 1.2], [1.7, 0.2]]).double())


@given(st.integers(1, 6), st.integers(2, 5), st.integers(2, 4), st.integers(0, 999))
def test_against_loops(n: int, p: int, classes: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    predictions = torch.randint(classes, (n, p), generator=rng)
    labels = torch.randint(classes, (n,), generator=rng)
    prices = torch.rand(p, generator=rng, dtype=torch.float64)
    costs = expert_costs(expert_errors(predictions, labels), prices)
    for i in range(n):
        for k in range(p):
            wrong = 0.0 if int(predictions[i, k]) == int(labels[i]) else 1.0
            assert float(costs[i, k]) == wrong + float(prices[k])


def test_prices() -> None:
    coverage = [0.7, 0.2, 0.1]
    assert expert_prices(None, NAMES, coverage).tolist() == [0, 0, 0]
    assert expert_prices("coverage", NAMES, coverage).tolist() == coverage
    assert expert_prices([1.0, 0.6, 0.1], NAMES, None).tolist() == [1.0, 0.6, 0.1]
    assert expert_prices({"c": 3, "a": 1, "b": 2}, NAMES, None).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "prices",
    [
        "free",
        [1.0, 2.0],
        [1.0, -0.1, 0.0],
        [1.0, float("nan"), 0.0],
        [1, float("inf"), 0],
        ["a", 1, 2],
        3,
        "coverage",
        {"a": 1, "b": 2},
        {"a": 1, "b": 2, "c": 3, "d": 4},
    ],
)
def test_bad_prices_name_the_key(prices: object) -> None:
    with pytest.raises(L2DError, match=r"cost\.prices"):
        expert_prices(prices, NAMES, None)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_bad_scales_name_the_key(scale: float) -> None:
    with pytest.raises(L2DError, match=r"^cost\.scale=.*finite and not negative"):
        check_scale(scale, [1.0, 0.5])


def test_extreme_prices_have_their_own_scale() -> None:
    check_scale(1, "extreme")
    with pytest.raises(L2DError, match=r"^cost\.scale=0\.5: .*extreme"):
        check_scale(0.5, "extreme")


def slow_extreme(rows: list[list[float]]) -> list[float]:
    """Every list of the grid, every row, one by one."""
    p, n = len(rows[0]), len(rows)
    strong = min(range(p), key=lambda k: (sum(row[k] for row in rows), k))
    found = []
    for tenths in itertools.product(range(11), repeat=p):
        if 0 not in tenths:
            continue
        beta = [step / 10 for step in tenths]
        mine = sum(min(range(p), key=lambda k: (row[k] + beta[k], k)) == strong for row in rows)
        found.append((abs(100 * mine - 95 * n), sum(tenths), tenths))
    return [step / 10 for step in min(found)[2]]


@settings(max_examples=30)
@given(st.integers(2, 3), st.integers(1, 9), st.integers(0, 999))
def test_extreme_against_the_whole_grid(p: int, n: int, seed: int) -> None:
    errors = torch.randint(2, (n, p), generator=torch.Generator().manual_seed(seed)).double()
    prices = extreme_prices(errors, NAMES)
    assert prices.tolist() == slow_extreme(errors.tolist())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + 1))
    assert torch.equal(extreme_prices(errors[order], NAMES), prices)


def test_extreme_by_hand() -> None:
    """Of 20 rows, a is wrong on six: b is right on three of these, c on one. All free, a has 16; c at 1 is never cheaper than a,
    which leaves 17; b at 1 leaves 19, which is 95 %. Nothing cheaper does."""
    wrong = [[0, 1, 1]] * 14 + [[1, 0, 1]] * 3 + [[1, 1, 0]] + [[1, 1, 1]] * 2
    errors = torch.tensor(wrong).double()
    prices = extreme_prices(errors, NAMES)
    assert prices.tolist() == [0, 1, 0]
    assert strongest(errors) == 0
    assert extreme_shares(prices.tolist(), errors, errors[-6:], NAMES) == {
        "expert": "a",
        "prices": [0, 1, 0],
        "target": 0.95,
        "share_train": 0.95,
        "share_test": 5 / 6,
    }
    four = torch.cat([errors, torch.ones(20, 1)], dim=1)
    assert extreme_prices(four, [*NAMES, "d"]).tolist() == [0, 1, 0, 0]


def test_extreme_needs_right_or_wrong_and_few() -> None:
    with pytest.raises(L2DError, match=r"^cost\.prices=extreme: .*right or wrong; b has an error of 0\.5"):
        extreme_prices(torch.tensor([[0.0, 1.0], [0.0, 0.5]]), NAMES)
    with pytest.raises(L2DError, match=r"^cost\.prices=extreme: is for at most 4 experts, here are 5"):
        extreme_prices(torch.zeros(3, 5), NAMES)


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


def test_multiplicative_noise_leaves_what_costs_nothing() -> None:
    costs = torch.tensor([[0.0, 1.0]]).double().expand(4000, 2)
    found = noisy(costs, 0.2, "multiplicative", stream(0))
    assert (found[:, 0] == 0).all()
    assert float(found[:, 1].std()) == pytest.approx(0.2, abs=0.01)
    assert float(found[:, 1].mean()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("noise", "kind"), [(-0.1, "additive"), (float("nan"), "additive"), (0.2, "gaussian")])
def test_bad_noise(noise: float, kind: str) -> None:
    with pytest.raises(L2DError, match=r"cost\.noise"):
        noisy(torch.ones(2, 2), noise, kind, stream(0))


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
