"""What the surrogate's minimiser decides: true statements for equal ρ, pinned counterexamples for the printed ones: Theorem 5.1 and
Corollaries 5.2 and 5.3. Their proof needs Σ_k e^{f_k/ρ_k'} to stay the same while two scores trade mass, for every k' at once; that
holds for equal ρ only. It also loses C(x), and needs all scores of an input at will, not each one alone."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from l2d.core.costs import sum_others
from l2d.core.decisions import argmax_last, comp_sum_posterior
from l2d.methods.comp_sum import comp_sum_loss


def conditional_surrogate(f: torch.Tensor, p: torch.Tensor, rho: torch.Tensor) -> float:
    return float(comp_sum_loss(f, p, rho))


def minimise(p: torch.Tensor, rho: torch.Tensor, tau: float = 1.0) -> torch.Tensor:
    """argmin_f Σ_k p_k Φ^τ by L-BFGS on the package's own loss."""
    f = torch.zeros_like(p, requires_grad=True)
    until = {"max_iter": 2000, "tolerance_grad": 1e-13, "tolerance_change": 1e-16}
    optimizer = torch.optim.LBFGS([f], line_search_fn="strong_wolfe", **until)  # type: ignore[arg-type]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = comp_sum_loss(f, p, rho, tau)
        loss.backward()
        return loss

    optimizer.step(closure)
    return f.detach()


def entropy(p: torch.Tensor) -> float:
    return float(-(p * p.log()).sum())


@given(st.integers(2, 5), st.floats(0.2, 10), st.integers(0, 9999))
def test_equal_rho_is_consistent(experts: int, rho: float, seed: int) -> None:
    """At the minimiser f = ρ log p (+ constant): argmax f = argmax p, and the least value is the entropy of p."""
    p = torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(experts)) * 0.9 + 0.1 / experts)
    f = minimise(p, torch.full_like(p, rho))
    np.testing.assert_allclose(torch.softmax(f / rho, dim=0), p, atol=1e-5)
    np.testing.assert_allclose(conditional_surrogate(f, p, torch.full_like(p, rho)), entropy(p), atol=1e-9)
    top = p.sort().values
    if top[-1] - top[-2] > 1e-3:
        assert int(argmax_last(f)) == int(p.argmax())


@given(st.integers(2, 5), st.floats(0.2, 10), st.floats(0.01, 20), st.integers(0, 9999))
def test_equal_rho_regret_bound(experts: int, rho: float, c: float, seed: int) -> None:
    """C·(max p − p_k*) ≤ √(2·C·surrogate regret) for any scores, the surrogate regret being C·(Σ_k p_k ℓ̃_k − H(p))."""
    rng = np.random.default_rng(seed)
    p, f = torch.tensor(rng.dirichlet(np.ones(experts)) * 0.99 + 0.01 / experts), torch.tensor(rng.normal(size=experts))
    target = c * float(p.max() - p[argmax_last(f)])
    surrogate = c * (conditional_surrogate(f, p, torch.full_like(p, rho)) - entropy(p))
    assert target <= math.sqrt(2 * c * max(surrogate, 0)) + 1e-7


def test_printed_bound_needs_costs_below_one() -> None:
    """C = 4, p = (.55, .45), equal scores decide for expert 2: regret 4·.1 = .4, but √(2·4·(log 2 − H(p))) ≈ .2."""
    c, p = 4.0, torch.tensor([0.55, 0.45], dtype=torch.float64)
    surrogate = c * (math.log(2) - entropy(p))
    target = c * float(p[0] - p[1])
    assert target > 1.9 * math.sqrt(2 * surrogate)
    assert target <= math.sqrt(2 * c * surrogate)


def test_printed_bound_fails_for_milds_rewards() -> None:
    """Costs (.9, 1.0): c̄ = (1.0, .9), C = 1.9. Equal scores decide for expert 2: regret .1. Surrogate regret C·log 2 + Σ c̄
    log(c̄/C) = .00263, so √(2·…) = .0726. With the factor C inside, √(2·C·…) = .10002, it holds."""
    rewards = sum_others(torch.tensor([0.9, 1.0], dtype=torch.float64))
    c = float(rewards.sum())
    surrogate = float(
        comp_sum_loss(torch.zeros(2, dtype=torch.float64), rewards, torch.ones(2)) - c * entropy(rewards / c)
    )
    np.testing.assert_allclose(
        [c, math.sqrt(2 * surrogate), math.sqrt(2 * c * surrogate)], [1.9, 0.07256, 0.10002], atol=1e-5
    )
    assert math.sqrt(2 * surrogate) < 0.1 <= math.sqrt(2 * c * surrogate)


def test_posterior_has_no_such_bound_away_from_the_minimiser() -> None:
    """ρ = (7.959, .085), p = (.5954, .4046), f = (.652, 1.111): the posterior at f is (.45, .55) and decides for expert 2,
    regret .1908. The surrogate regret is .00047, and √(2·…) = .031."""
    p, rho = torch.tensor([0.5954, 0.4046], dtype=torch.float64), torch.tensor([7.959, 0.085], dtype=torch.float64)
    f = torch.tensor([0.652, 1.111], dtype=torch.float64)
    least = minimize_scalar(
        lambda d: conditional_surrogate(torch.tensor([-d, 0.0], dtype=torch.float64), p, rho), bounds=(0, 5)
    ).fun
    bound = math.sqrt(2 * (conditional_surrogate(f, p, rho) - least))
    np.testing.assert_allclose(comp_sum_posterior(f, rho), [0.45, 0.55], atol=1e-3)
    assert int(argmax_last(comp_sum_posterior(f, rho))) == 1
    assert 0.03 < bound < 0.031 < 0.19 < float(p[0] - p[1])


def test_complete_as_defined_is_not_enough() -> None:
    """F = {(a, a + .01)} ∪ {(a, a − 10)} for every real a: each score takes every value, so F is complete. p = (.55, .45), ρ =
    1, C = 1: the surrogate is .694 on the first part and 4.50 on the second, so the first is best in class. But it decides for
    expert 2: regret .1 at surrogate regret 0. The proof needs the scores of an input to take every value together."""
    p, one = torch.tensor([0.55, 0.45], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    first, second = torch.tensor([0.0, 0.01], dtype=torch.float64), torch.tensor([0.0, -10.0], dtype=torch.float64)
    np.testing.assert_allclose([conditional_surrogate(f, p, one) for f in (first, second)], [0.694, 4.50], atol=1e-3)
    assert [int(argmax_last(f)) for f in (first, second)] == [1, 0]
    np.testing.assert_allclose(conditional_surrogate(first + 7, p, one), conditional_surrogate(first, p, one))


def test_unequal_rho_is_not_consistent_by_argmax() -> None:
    """p = (.55, .45), ρ = (1, .3): the minimiser scores expert 2 higher, regret .1 at surrogate regret 0.

    With d = f_1 − f_2 the loss is .55·log(1 + e^{−d}) + .45·log(1 + e^{d/.3}). Its derivative at d = 0 is −.55/2 + .45/(2·.3) =
    .475 > 0, and it is convex, so the minimum lies at d < 0: expert 2.
    """
    p, rho = torch.tensor([0.55, 0.45], dtype=torch.float64), torch.tensor([1.0, 0.3], dtype=torch.float64)
    f = minimise(p, rho)
    assert f[0] < f[1]
    assert int(argmax_last(f)) == 1
    assert int(argmax_last(comp_sum_posterior(f, rho))) == 0
    np.testing.assert_allclose(comp_sum_posterior(f, rho), p, atol=1e-6)


def test_swapping_mass_keeps_the_sums_at_rho_one_only() -> None:
    """Eqs. (value-h-mu), (property-h-mu): two scores become log(e^{f_2} + μ) and log(e^{f_1} − μ). At ρ = 1, Σ_k e^{f_k/ρ}
    stays; at another ρ it does not, so with unequal ρ it cannot stay for every ρ_k' at once. For equal ρ the swap must be made
    with f/ρ. And μ is not any real number: from e^{f_1} = 1 on there is no logarithm."""
    f, mu = np.array([0.0, 1.0, -0.5]), 0.3

    def swapped(f: np.ndarray) -> np.ndarray:
        return np.array([np.log(np.exp(f[1]) + mu), np.log(np.exp(f[0]) - mu), f[2]])

    np.testing.assert_allclose(np.exp(f).sum(), np.exp(swapped(f)).sum())
    assert abs(np.exp(f / 0.3).sum() - np.exp(swapped(f) / 0.3).sum()) > 1
    np.testing.assert_allclose(np.exp(f / 0.3).sum(), np.exp(swapped(f / 0.3)).sum())
    assert np.exp(f[0]) - 1.0 == 0


def test_the_best_swap_weighs_p_by_one_over_rho() -> None:
    """The proof's sup over μ of (p_m/ρ_m) log(A − μ) + (p_f/ρ_f) log(B + μ), A = e^{f(𝖿)}, B = e^{f(k_max)}, is at
    μ = (A w_f − B w_m)/(w_m + w_f) with w = p/ρ. The printed w = p·ρ is right for equal ρ only."""
    (a, b), (best, chosen) = (3.0, 2.0), (0.5, 0.3)  # A, B, p_m, p_f
    for rho, printed_is_right in (((0.5, 0.5), True), ((1.0, 0.4), False)):
        found = minimize_scalar(
            lambda mu, rho=rho: -best / rho[0] * math.log(a - mu) - chosen / rho[1] * math.log(b + mu),
            bounds=(-b + 1e-9, a - 1e-9),
            method="bounded",
        ).x
        ours, printed = (
            (a * chosen * rho[1] ** power - b * best * rho[0] ** power)
            / (best * rho[0] ** power + chosen * rho[1] ** power)
            for power in (-1, 1)
        )
        np.testing.assert_allclose(found, ours, atol=1e-4)
        assert (abs(found - printed) < 1e-4) == printed_is_right


@given(st.floats(0.01, 0.98), st.floats(0.01, 1), st.floats(0, 20))
def test_the_last_steps_of_the_proof(best: float, share: float, ahead: float) -> None:
    """For p_m ≥ p_f and f(𝖿) ≥ f(k_max): the regret of the pair is least at equal scores, where it is (p_m + p_f)·KL(p‖½), at least
    (p_m − p_f)²/2 by Pinsker's inequality and p_m + p_f ≤ 1."""
    chosen = share * min(best, 1 - best)
    mass = best + chosen

    def regret(ahead: float) -> float:
        to_best, to_chosen = np.logaddexp(0, ahead), np.logaddexp(0, -ahead)
        return float(best * (math.log(best / mass) + to_best) + chosen * (math.log(chosen / mass) + to_chosen))

    assert regret(ahead) >= regret(0) - 1e-12
    assert regret(0) >= (best - chosen) ** 2 / 2 - 1e-12


def rho_margin(u: np.ndarray, rho: float) -> np.ndarray:
    return np.clip(1 - u / rho, 0, 1)


@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_margin_loss_is_below_hinge_and_exponential(rho: float, u: float) -> None:
    phi = rho_margin(np.array(u), rho)
    assert phi <= max(0.0, 1 - u / rho) + 1e-12
    assert phi <= math.exp(min(700, -u / rho)) + 1e-12
    assert phi <= np.logaddexp(0, -u / rho) / math.log(2) + 1e-12  # the logistic loss in base 2


def test_margin_loss_is_not_below_the_natural_logistic() -> None:
    """At equal scores Φ_ρ(0) = 1, the logistic loss log 2. Comp-sum with τ = 2 is 1 − 1/(1 + e^{−u}) < 1 everywhere."""
    assert rho_margin(np.array(0.0), 1.0) == 1 > math.log(2)
    assert rho_margin(np.array(-3.0), 1.0) == 1 > 1 - 1 / (1 + math.exp(3))
