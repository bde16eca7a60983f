"""What the surrogate's minimiser decides: true statements for equal ρ, pinned counterexamples for the printed ones.

Theorem 5.1 and Corollaries 5.2 and 5.3 are stated for every ρ > 0. Their proof needs Σ_k e^{f_k/ρ_k'} to stay the same while two scores
trade mass, for every k' at once; that holds for equal ρ only.
"""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

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


def test_unequal_rho_is_not_consistent_by_argmax() -> None:
    """p = (.55, .45), ρ = (1, .3): the minimiser scores expert 2 higher, regret .1 at surrogate regret 0.

    With d = f_1 − f_2 the loss is .55·log(1 + e^{−d}) + .45·log(1 + e^{d/.3}). Its derivative at d = 0 is −.55/2 + .45/(2·.3) = .475 > 0,
    and it is convex, so the minimum lies at d < 0: expert 2.
    """
    p, rho = torch.tensor([0.55, 0.45], dtype=torch.float64), torch.tensor([1.0, 0.3], dtype=torch.float64)
    f = minimise(p, rho)
    assert f[0] < f[1]
    assert int(argmax_last(f)) == 1
    assert int(argmax_last(comp_sum_posterior(f, rho))) == 0
    np.testing.assert_allclose(comp_sum_posterior(f, rho), p, atol=1e-6)


def test_swapping_mass_keeps_the_sums_for_equal_rho_only() -> None:
    """Eq. (property-h-mu): two scores become log(e^{f_2} + μ) and log(e^{f_1} − μ). With ρ = 1 for all, Σ_k e^{f_k/ρ} stays; at another
    ρ it does not, so with unequal ρ it cannot stay for every ρ_k' at once."""
    f, mu = np.array([0.0, 1.0, -0.5]), 0.3
    moved = np.array([np.log(np.exp(f[1]) + mu), np.log(np.exp(f[0]) - mu), f[2]])
    np.testing.assert_allclose(np.exp(f).sum(), np.exp(moved).sum())
    assert abs(np.exp(f / 0.3).sum() - np.exp(moved / 0.3).sum()) > 1


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
