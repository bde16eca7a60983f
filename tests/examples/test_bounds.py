"""The margin bound: values by hand, every sign enumerated on tiny samples, and a form that is false as printed."""

import itertools
import math

import bounds
import numpy as np
import pytest
import torch
from bounds import OURS, PAPER
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from l2d.core.rho import rho_shares


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def case(seed: int, m: int, p: int, d: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """features [m, d], weights [m, p] with row sums at most 1 and some zeros, rho [p]."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(p), size=m) * rng.uniform(0.2, 1, (m, 1)) * (rng.random((m, p)) > 0.3)
    return torch.tensor(rng.normal(size=(m, d))), torch.tensor(weights), torch.tensor(rng.uniform(0.1, 5, p))


def one_hot(labels: list[int], p: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(labels), p).double()


def exact_rademacher(features: torch.Tensor, weights: torch.Tensor, rho: torch.Tensor, norm_bound: float) -> float:
    """By the definition, over all 2^(mp) sign matrices; the supremum by Cauchy-Schwarz."""
    m, p = weights.shape
    total = 0.0
    for flat in itertools.product((-1.0, 1.0), repeat=m * p):
        signs = np.array(flat).reshape(m, p)
        direction = np.zeros((p, features.shape[1]))
        for i in range(m):
            a = sum(float(weights[i, k]) / float(rho[k]) for k in range(p))
            for k in range(p):
                direction[k] += signs[i, k] * a * features[i].numpy()
        total += norm_bound * math.sqrt((direction**2).sum())
    return total / 2 ** (m * p) / m


def test_margins_and_their_loss_by_hand() -> None:
    """Margins (2, −2), ρ = (4, 1): Φ = 1 − 2/4 = .5 and 1; weights .8 and .1 give .5. The zero-one loss counts expert 2 alone."""
    assert bounds.score_margins(f64([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])).tolist() == [[1, -2, -1], [0, 0, -1]]
    scores, weights = f64([[2.0, 0.0]]), f64([[0.8, 0.1]])
    np.testing.assert_allclose(bounds.weighted_margin_loss(scores, weights, f64([4.0, 1.0])), [0.5])
    np.testing.assert_allclose(bounds.weighted_zero_one_loss(scores, weights), [0.1])
    np.testing.assert_allclose(bounds.weighted_zero_one_loss(f64([[1.0, 1.0]]), weights), [0.9])  # ties count for both


@given(st.integers(0, 9999), st.integers(2, 5))
def test_margin_loss_is_the_papers_for_labelled_points(seed: int, p: int) -> None:
    """L_ρ(f, x, k) = max_{k'≠k} c·Φ_{ρ_k}(f_k − f_k') with c = C(x), over which the maximum is taken one k' at a time."""
    rng = np.random.default_rng(seed)
    scores, rho, c, k = rng.normal(size=p), rng.uniform(0.1, 3, p), rng.uniform(), int(rng.integers(p))
    slow = max(c * min(1.0, max(0.0, 1 - (scores[k] - scores[j]) / rho[k])) for j in range(p) if j != k)
    weights = c * one_hot([k], p)
    np.testing.assert_allclose(bounds.weighted_margin_loss(f64(scores)[None], weights, f64(rho)), [slow], atol=1e-12)


def test_norms_by_hand() -> None:
    """Rows of norms 5 and 1; expert 1 has weight on the second alone, expert 2 on both, expert 3 on none."""
    features, weights = f64([[3.0, 4.0], [1.0, 0.0]]), f64([[0.0, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert bounds.largest_norms(features, weights).tolist() == [1, 5, 0]


@pytest.mark.slow
@given(st.integers(0, 9999), st.sampled_from([(2, 2), (3, 2), (2, 3)]), st.floats(0.1, 10))
def test_both_forms_are_above_the_complexity(seed: int, shape: tuple[int, int], norm_bound: float) -> None:
    m, p = shape
    features, weights, rho = case(seed, m, p)
    counts, norms = weights.sum(dim=0), bounds.largest_norms(features, weights)
    exact = exact_rademacher(features, weights, rho, norm_bound)
    first = bounds.rademacher_bound(counts, norms, rho, norm_bound, m)
    assert exact <= first * (1 + 1e-9)
    assert first <= bounds.rademacher_bound_one_norm(counts, norms, rho, norm_bound, m) * (1 + 1e-9)


def test_forms_by_hand() -> None:
    """m_j = (3, 1), X_j = (1, 2), ρ = (1, .5), F = 2, m = 4, p = 2: Σ = 3 + 16 = 19, with X = 2: 12 + 16 = 28."""
    counts, norms, rho = f64([3.0, 1.0]), f64([1.0, 2.0]), f64([1.0, 0.5])
    for form, inside in ((bounds.rademacher_bound, 19), (bounds.rademacher_bound_one_norm, 28)):
        assert form(counts, norms, rho, 2.0, 4) == pytest.approx(math.sqrt(2) / 2 * math.sqrt(inside))


@pytest.mark.parametrize("seed", range(3))
def test_monte_carlo_finds_the_complexity(seed: int) -> None:
    features, weights, rho = case(seed, 3, 2)
    estimate, error = bounds.rademacher_monte_carlo(features, weights, rho, 1.3, draws=400, seed=seed)
    assert abs(estimate - exact_rademacher(features, weights, rho, 1.3)) <= 5 * error + 1e-9
    assert bounds.rademacher_monte_carlo(features, weights, rho, 1.3, draws=400, seed=seed + 1)[0] != estimate


def test_the_standard_error_of_the_random_signs() -> None:
    """Two points, one score: |ε_1 + ε_2|/2 is 0 or 1, so the mean is ½ and its error with 400 draws ½/20."""
    ones = f64([[1.0]] * 2)
    estimate, error = bounds.rademacher_monte_carlo(ones, ones, f64([1.0]), 1.0, draws=400, seed=0)
    assert estimate == pytest.approx(0.5, abs=0.1)
    assert error == pytest.approx(0.025, rel=0.05)


def test_first_form_fails_with_the_printed_norms() -> None:
    """Section 4.2, A defines X_k by ‖Φ(x, k)‖ ≤ X_k for all x. Two points of S_1, Φ(x, 1) = 0, Φ(x, 2) = 1, F = ρ = 1: X_1 = 0 and
    m_2 = 0, so the first form is 0. But R̂ = ½·E|ε_12 + ε_22| = ½. With X_1 = max over S_1 and k, as in the proof, it is 1/√2."""
    complexity = sum(abs(a + b) for a, b in itertools.product((-1, 1), repeat=2)) / 4 / 2
    counts, rho = f64([2.0, 0.0]), f64([1.0, 1.0])
    assert complexity == 0.5
    assert bounds.rademacher_bound(counts, f64([0.0, 1.0]), rho, 1.0, 2) == 0
    assert bounds.rademacher_bound(counts, f64([1.0, 0.0]), rho, 1.0, 2) == pytest.approx(1)
    assert complexity <= bounds.rademacher_bound_one_norm(counts, f64([0.0, 1.0]), rho, 1.0, 2)


def test_corollary_fails_with_the_printed_norms() -> None:
    """The same norms in Corollary 4.2: x is one of 1,000 orthogonal directions, the label always 1, Φ(x, 1) = 0, Φ(x, 2) = e_x,
    ρ = 1. X_1 = 0 and m_2 = 0, so no complexity is left. w = −1 on the 100 points seen and 1 elsewhere (F = √1,000) has margin 1
    on the sample, and is wrong on at least 900 of 1,000 inputs. The bound at δ = .05 is 3√(log 40/200) = .407; with X_1 = 1, as
    in the proof, it is far above 1."""
    seen = np.random.default_rng(0).integers(1000, size=100)
    w = np.ones(1000)
    w[seen] = -1
    scores = f64(np.stack([np.zeros(1000), w], axis=1))
    labels, rho, counts = one_hot([0] * 1000, 2), f64([1.0, 1.0]), f64([100.0, 0.0])
    empirical = float(bounds.weighted_margin_loss(scores, labels, rho)[seen].mean())
    expected = float(bounds.weighted_zero_one_loss(scores, labels).mean())
    totals = {}
    for norms in ((0.0, 1.0), (1.0, 1.0)):
        rademacher = bounds.rademacher_bound(counts, f64(norms), rho, math.sqrt(1000), 100)
        totals[norms[0]] = bounds.margin_bound(empirical, rademacher, rho, 100, delta=0.05, constants=PAPER).total
    assert totals[0] == pytest.approx(0.407, abs=1e-3)
    assert totals[0] < 0.9 <= expected <= 1 < totals[1]


@pytest.mark.parametrize("factor", [1.1, 3.0, 100.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_larger_rho_trades_complexity_for_margin_loss(seed: int, factor: float) -> None:
    """If ρ_k grows, R̂_{S,ρ} does not: it is convex and even in the weight 1/ρ_k of a point of S_k. And Φ_{ρ_k} does not fall."""
    features, _, rho = case(seed, 2, 2)
    labels = one_hot([0, 1], 2)
    larger = rho * f64([factor, 1.0])
    assert exact_rademacher(features, labels, larger, 1.0) <= exact_rademacher(features, labels, rho, 1.0) * (1 + 1e-9)
    scores = torch.tensor(np.random.default_rng(seed).normal(size=(2, 2)))
    before, after = (bounds.weighted_margin_loss(scores, labels, one) for one in (rho, larger))
    assert (after >= before - 1e-12).all()


@given(st.integers(0, 9999), st.integers(2, 6), st.floats(0.1, 5))
def test_lipschitz_constant(seed: int, p: int, rho: float) -> None:
    """v ↦ Φ_ρ(v_k − max_{k'≠k} v_k') is √2/ρ-Lipschitz in the Euclidean norm, whatever p; the proof of Theorem 4.1 takes 2√p/ρ."""
    rng = np.random.default_rng(seed)
    one = torch.tensor(rng.normal(size=(1, p)))
    other = one + torch.tensor(rng.normal(size=(1, p)) * rng.choice([0.01, 1]))
    label, margins = one_hot([int(rng.integers(p))], p), torch.full((p,), rho, dtype=torch.float64)
    change = bounds.weighted_margin_loss(one, label, margins) - bounds.weighted_margin_loss(other, label, margins)
    assert abs(float(change)) <= math.sqrt(2) / rho * float((one - other).norm()) + 1e-12


@given(st.integers(0, 9999), st.sampled_from([(2, 2), (3, 2), (2, 3)]))
def test_constant_four_is_enough(seed: int, shape: tuple[int, int]) -> None:
    """2·R̂(losses) ≤ 4·R̂_{S,ρ}, both exact, for finite classes of scores, weights included: all of the proof but Theorem 3.3."""
    m, p = shape
    _, weights, rho = case(seed, m, p)
    scores = torch.tensor(np.random.default_rng(seed).normal(size=(5, m, p)) * 2)
    losses = bounds.weighted_margin_loss(scores, weights, rho).numpy()
    left = np.mean([(losses @ np.array(signs)).max() for signs in itertools.product((-1, 1), repeat=m)]) / m
    scaled = (scores * (weights / rho).sum(dim=1)[:, None]).reshape(5, -1).numpy()
    right = np.mean([(scaled @ np.array(signs)).max() for signs in itertools.product((-1, 1), repeat=m * p)]) / m
    assert 2 * left <= bounds.contraction(p, OURS) * right + 1e-12


def test_bound_by_hand() -> None:
    """p = 2, m = 200, δ = .05, R̂ = .01: complexity 4√4·.01 = .08, confidence 3√(log 40/400).

    Uniform up to 1: ρ = (1, .25) is rounded down to 2^−1, 2^−3, so n = (1, 3); the complexity doubles, log 40 gains
    2·log(π²/6) + 2·log 3.
    """
    rho = f64([1.0, 0.25])
    fixed = bounds.margin_bound(0.1, 0.01, rho, 200, delta=0.05, constants=PAPER)
    assert fixed.complexity == pytest.approx(0.08)
    assert fixed.confidence == pytest.approx(3 * math.sqrt(math.log(40) / 400))
    assert fixed.uniform == 0
    assert fixed.total == pytest.approx(0.1 + 0.08 + 3 * math.sqrt(math.log(40) / 400))
    uniform = bounds.margin_bound(0.1, 0.01, rho, 200, delta=0.05, constants=PAPER, ceiling=1.0)
    inside = math.log(40) + 2 * math.log(math.pi**2 / 6) + 2 * math.log(3)
    assert uniform.complexity == pytest.approx(0.16)
    assert uniform.total == pytest.approx(0.1 + 0.16 + 3 * math.sqrt(inside / 400))
    assert bounds.margin_bound(0.1, 0.01, rho, 200, delta=0.05, constants=OURS).complexity == pytest.approx(0.04)
    first = bounds.first_margin_bound(0.1, 0.01, 2, 200, delta=0.05, constants=PAPER)
    assert [first.empirical, first.complexity, first.uniform] == pytest.approx([0.1, 0.08, 0])
    assert first.confidence == pytest.approx(math.sqrt(math.log(20) / 400))


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=4), st.sampled_from([1.0, 4.0]))
def test_rounding_of_the_uniform_bound(values: list[float], ceiling: float) -> None:
    """The grid value n = ⌊log2(ceiling/ρ)⌋ + 1 has ρ/2 ≤ ceiling·2^−n < ρ: Φ grows with ρ, 1/ρ at most doubles; n ≤
    log2(2·ceiling/ρ)."""
    for value in values:
        rho = value * ceiling
        n = math.floor(math.log2(ceiling / rho)) + 1
        assert n >= 1
        assert rho / 2 * (1 - 1e-9) <= ceiling * 2.0**-n < rho * (1 + 1e-9)
        assert n <= math.log2(2 * ceiling / rho) + 1e-9


@given(st.integers(0, 9999), st.integers(1, 50))
def test_corollary_falls_with_the_sample_and_grows_with_the_norm(seed: int, times: int) -> None:
    """A sample repeated: m and every m_j grow alike. The value is Corollary 4.2's 4√2·p·F/m·√Σ_j m_j X_j²/ρ_j²."""
    features, weights, rho = case(seed, 5, 3)
    counts, norms = weights.sum(dim=0), bounds.largest_norms(features, weights)

    def total(repeats: int, norm_bound: float) -> bounds.MarginBound:
        rademacher = bounds.rademacher_bound(repeats * counts, norms, rho, norm_bound, 5 * repeats)
        return bounds.margin_bound(0.2, rademacher, rho, 5 * repeats, delta=0.1, constants=PAPER)

    inside = sum(float(counts[j] * norms[j] ** 2 / rho[j] ** 2) for j in range(3))
    slow = 4 * math.sqrt(2) * 3 * 1.7 / 5 * math.sqrt(inside)
    assert total(1, 1.7).complexity == pytest.approx(slow)
    assert total(times + 1, 1.7).total < total(times, 1.7).total
    assert total(times, 1.7).total <= total(times, 2.0).total


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.1, 10)), min_size=2, max_size=5), st.floats(0.5, 10))
def test_shares_make_the_complexity_least(pairs: list[tuple[float, float]], total: float) -> None:
    """Against a numerical minimiser over the simplex, and the closed value (Σ (m X²)^(1/3))³/ρ̄²."""
    counts, norms = (f64(list(column)) for column in zip(*pairs, strict=True))
    closed = total * rho_shares(counts, norms)
    least = bounds.complexity_sum(counts, norms, closed)
    assert least == pytest.approx(float((counts * norms**2).pow(1 / 3).sum()) ** 3 / total**2, rel=1e-9)

    def value(free: np.ndarray) -> float:
        rho = total * torch.softmax(torch.tensor(free), dim=0)
        return math.log(bounds.complexity_sum(counts, norms, rho))

    found = minimize(value, np.zeros(len(pairs)), method="BFGS", options={"gtol": 1e-7})
    assert found.fun == pytest.approx(math.log(least), abs=1e-5)
    np.testing.assert_allclose(total * torch.softmax(torch.tensor(found.x), dim=0), closed, rtol=2e-2)
