"""argmax with its tie rule, the posterior behind comp-sum scores, the deferral loss, and Lemmas 1 and 2, ties included."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from l2d.core.costs import complement, complement_scale, sum_others
from l2d.core.decisions import argmax_last, comp_sum_posterior, deferral_loss, stationary_log
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


def draw(n: int, p: int, seed: int, ties: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (small integers when ties are wanted) and costs in [0, 1], float64 [n, p]."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-1, 2, (n, p)).astype(float) if ties else rng.normal(size=(n, p))
    return torch.tensor(scores), torch.tensor(rng.random((n, p)))


deferral_cases = given(st.integers(1, 8), st.integers(2, 6), st.integers(0, 9999), st.booleans())


def test_deferral_loss_by_hand() -> None:
    """Row 1 picks expert 2; row 2 ties and so takes the last, expert 3."""
    scores = torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.0, 1.0]])
    costs = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert deferral_loss(scores, costs).tolist() == costs[[0, 1], [1, 2]].tolist()


@deferral_cases
def test_definition(n: int, p: int, seed: int, ties: bool) -> None:
    """Σ_k c_k 1[k = k*], written as loops."""
    scores, costs = draw(n, p, seed, ties)
    for f, c, loss in zip(scores.numpy(), costs.numpy(), deferral_loss(scores, costs).numpy(), strict=True):
        best = max(range(p), key=lambda k: (f[k], k))
        assert loss == sum(c[k] for k in range(p) if k == best)


def cost_sensitive_loss(scores: Tensor, rewards: Tensor) -> Tensor:
    """Σ_k c̄_k 1[k ≠ k*]: Lemmas 1 and 2 without their constants. [B, p], [B, p] -> [B]. The paper writes 1[ρ_f(x, k) ≤ 0] for
    1[k ≠ k*]; the two differ where scores tie, and only this one keeps the lemmas true there."""
    chosen = torch.nn.functional.one_hot(argmax_last(scores), scores.shape[-1]).bool()
    return rewards.masked_fill(chosen, 0).sum(dim=-1)


@deferral_cases
def test_lemma_1(n: int, p: int, seed: int, ties: bool) -> None:
    """L_def = Σ_k (Σ_{k'≠k} c_k') 1[k ≠ k*] − (p − 2) Σ_k c_k."""
    scores, costs = draw(n, p, seed, ties)
    right = cost_sensitive_loss(scores, sum_others(costs)) - (p - 2) * costs.sum(1)
    torch.testing.assert_close(deferral_loss(scores, costs), right)


@deferral_cases
def test_lemma_2(n: int, p: int, seed: int, ties: bool) -> None:
    """L_def = Σ_k (1 − c_k) 1[k ≠ k*] + Σ_k c_k − (p − 1), for costs in [0, 1]. Costs above 1 are first divided by the largest: the
    lemma then gives L_def/scale."""
    scores, costs = draw(n, p, seed, ties)
    right = cost_sensitive_loss(scores, complement(costs)) + costs.sum(1) - (p - 1)
    torch.testing.assert_close(deferral_loss(scores, costs), right)
    costs = 3 * costs
    scale = complement_scale(costs)
    right = cost_sensitive_loss(scores, complement(costs, scale)) + costs.sum(1) / scale - (p - 1)
    torch.testing.assert_close(deferral_loss(scores, costs) / scale, right)


def test_lemmas_as_printed_fail_on_ties() -> None:
    """1[ρ_f(x, k) ≤ 0] counts every expert of a tie as missed: scores (0, 0), costs (0, 1).

    Lemma 1 as printed: c̄ = (1, 0), both margins are 0, so the right side is 1 − 0·(0 + 1) = 1. It happens to be the true value
    here (the tie goes to expert 2), but with costs (1, 0) it gives 0·… + 1 = 1 while the deferral loss is 0. Lemma 2 has the
    same rewards here: 1 + (1 + 0) − 1 = 1.
    """
    scores = torch.tensor([[0.0, 0.0]])
    costs = torch.tensor([[1.0, 0.0]])
    margins = scores - scores.flip(1)
    printed = (sum_others(costs) * (margins <= 0)).sum(1)
    assert printed.item() == 1
    assert ((complement(costs) * (margins <= 0)).sum(1) + costs.sum(1) - 1).item() == 1
    assert deferral_loss(scores, costs).item() == 0
    assert cost_sensitive_loss(scores, sum_others(costs)).item() == 0


KINDS = st.sampled_from(["sum_others", "complement"])


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 9999), KINDS, st.booleans())
def test_identity_with_the_input_expert_domain(p: int, inputs: int, seed: int, rewards: str, ties: bool) -> None:
    """Eq. (new): E_(x,y)[Σ_k c̄_k 1[k ≠ k*]] = E_(x,k)~P[C(x) 1[k ≠ k*]], by enumerating a finite world.

    C(x) = E_y|x Σ_k c̄_k, p(k|x) = E_y|x c̄_k / C(x), P(x, k) = p(k|x) D(x).
    """
    rng = np.random.default_rng(seed)
    labels = 3
    marginal, conditional = rng.dirichlet(np.ones(inputs)), rng.dirichlet(np.ones(labels), inputs)
    costs = torch.tensor(rng.random((inputs, labels, p)))
    scores = draw(inputs, p, seed, ties)[0]
    c_bar = sum_others(costs) if rewards == "sum_others" else complement(costs)
    world = list(product(range(inputs), range(labels)))
    weights = torch.tensor(marginal[:, None] * conditional)
    left = sum(float(weights[x, y] * cost_sensitive_loss(scores[x][None], c_bar[x, y][None])) for x, y in world)
    right = 0.0
    for x in range(inputs):
        expected = sum(conditional[x, y] * c_bar[x, y].numpy() for y in range(labels))
        total = expected.sum()
        chosen = max(range(p), key=lambda k: (float(scores[x, k]), k))
        right += sum(marginal[x] * (expected[k] / total) * total for k in range(p) if k != chosen)
    np.testing.assert_allclose(left, right)
    # and less the constant of the lemma it is the expected deferral loss itself
    constant = (p - 2) * costs.sum(-1) if rewards == "sum_others" else p - 1 - costs.sum(-1)
    direct = sum(float(weights[x, y] * deferral_loss(scores[x][None], costs[x, y][None])) for x, y in world)
    np.testing.assert_allclose(direct, left - float((weights * constant).sum()))


def test_equation_new_leaves_a_constant_out() -> None:
    """Three experts that are all wrong: L_def = 1 whichever is asked. c̄ = (2, 2, 2), so E_P[ℓ_def] = 2 + 2 = 4, and 4 − (p −
    2)·3 = 1."""
    scores, costs = torch.tensor([[0.0, 1.0, 2.0]]), torch.ones(1, 3)
    assert deferral_loss(scores, costs).item() == 1
    assert cost_sensitive_loss(scores, sum_others(costs)).item() == 4


def test_rewards_that_are_all_zero_have_no_distribution() -> None:
    """C(x) = 0, so p(k|x) is 0/0: all experts right (Lemma 1's rewards), or all wrong (Lemma 2's)."""
    assert sum_others(torch.zeros(1, 3)).sum() == 0
    assert complement(torch.ones(1, 3)).sum() == 0


def test_ell_def_is_a_case_of_the_loss_of_section_4_only_below_one() -> None:
    """Section 4.1 wants costs c(x, k, k') ≤ 1 that are 0 at k = 𝖿(x). C(x) = Σ_k c̄_k is 2 where two experts are wrong, and with
    1 − c_k it is 2 where two are right. At the tie (0, 0) C(x)·1[ρ_f ≤ 0] also charges k = 𝖿(x) = 2: c̄ = (.2, .3) costs .5
    instead of .2."""
    assert sum_others(torch.ones(1, 2)).sum() == 2
    assert complement(torch.zeros(1, 2)).sum() == 2
    scores, rewards = torch.zeros(1, 2), torch.tensor([[0.2, 0.3]])
    margins = scores - scores.flip(1)
    torch.testing.assert_close((rewards * (margins <= 0)).sum(), torch.tensor(0.5))
    torch.testing.assert_close(cost_sensitive_loss(scores, rewards), torch.tensor([0.2]))
