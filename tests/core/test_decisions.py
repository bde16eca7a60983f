"""argmax with its tie rule, and the posterior behind comp-sum scores."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from l2d.core.decisions import argmax_last, comp_sum_posterior, stationary_log
from l2d.methods.comp_sum import comp_sum_loss


@given(st.lists(st.integers(-2, 2), min_size=2, max_size=6))
def test_argmax_against_a_loop(values: list[int]) -> None:
    best = 0
    for k, value in enumerate(values):
        if value >= values[best]:
            best = k
    assert int(argmax_last(torch.tensor(values, dtype=torch.float16))) == best


@given(st.integers(2, 6), st.integers(0, 999))
def test_stationary_against_linear_algebra(p: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).dirichlet(np.ones(p), size=p)
    system = np.vstack([matrix.T - np.eye(p), np.ones(p)])
    expected = np.linalg.lstsq(system, np.append(np.zeros(p), 1), rcond=None)[0]
    np.testing.assert_allclose(stationary_log(torch.tensor(matrix).log()).exp(), expected, rtol=1e-9)


def surrogate_minimiser(p: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """argmin_f Σ_k p_k log Σ_j exp((f_j − f_k)/ρ_k), a convex problem, by Newton steps; nothing of the package is used."""

    def softmaxes(f: np.ndarray) -> np.ndarray:
        z = f[None, :] / rho[:, None]
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def value(f: np.ndarray) -> float:
        z = (f[None, :] - f[:, None]) / rho[:, None]
        top = z.max(axis=1)
        return float(p @ (top + np.log(np.exp(z - top[:, None]).sum(axis=1))))

    def gradient(f: np.ndarray) -> np.ndarray:
        return (p / rho) @ softmaxes(f) - p / rho

    def hessian(f: np.ndarray) -> np.ndarray:
        s = softmaxes(f)
        parts = [w * (np.diag(row) - np.outer(row, row)) for w, row in zip(p / rho**2, s, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    f = minimize(value, rho * np.log(p), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-6}).x
    for _ in range(8):  # the minimiser is known but for a constant, hence the pseudo-inverse
        f = f - np.linalg.pinv(hessian(f), rcond=1e-12) @ gradient(f)
    assert np.abs(gradient(f)).max() < 1e-10
    return f


@pytest.mark.slow
@given(st.integers(2, 5), st.integers(0, 9999))
def test_posterior_recovers_p_at_the_minimiser(experts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(experts)) * 0.95 + 0.05 / experts
    rho = np.exp(rng.uniform(np.log(0.3), np.log(6), experts))
    posterior = comp_sum_posterior(torch.tensor(surrogate_minimiser(p, rho)), torch.tensor(rho))
    np.testing.assert_allclose(posterior, p, atol=1e-6)


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 1.25, 1.9, 3.0])
def test_posterior_makes_the_surrogate_stationary(tau: float) -> None:
    """The defining property, through autograd: at any f, p̂(f) is the p for which f is a minimiser."""
    f = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    rho = torch.tensor([0.9, 1.0, 3.0, 2.0], dtype=torch.float64)
    p = comp_sum_posterior(f, rho, tau).detach()
    (gradient,) = torch.autograd.grad(comp_sum_loss(f, p, rho, tau).sum(), f)
    assert gradient.abs().max() < 1e-12
    equal = comp_sum_posterior(f, torch.full((4,), 2.0), tau)
    torch.testing.assert_close(equal, torch.softmax((2 - tau) * f / 2, dim=-1))


def test_large_scores_keep_their_differences() -> None:
    """f/ρ of 1e6 has no room in float32 for a difference of .1: the maximum is taken off first."""
    scores = torch.tensor([[1e4 + 1 / 1024, 1e4, 1e4 - 1]])
    exact = comp_sum_posterior(scores.double(), torch.full((3,), 1e-2))
    torch.testing.assert_close(comp_sum_posterior(scores, torch.full((3,), 1e-2)).double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rho", [[1e-2, 1.0, 1e3], [1e3, 1.0, 1e-2]])
def test_posterior_of_extreme_scores(dtype: torch.dtype, rho: list[float]) -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [0.0, 0.0, 0.0]], dtype=dtype)
    p: Tensor = comp_sum_posterior(scores, torch.tensor(rho))
    assert torch.isfinite(p).all()
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(3, dtype=p.dtype))
    assert p.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
