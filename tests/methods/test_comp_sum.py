"""Σ_k c̄_k log Σ_k' exp((f_k' − f_k)/ρ_k), TDEF and MILD."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.test_consistency import minimise

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.core.decisions import comp_sum_posterior
from l2d.methods.comp_sum import CompSum, comp_sum_loss, comp_sum_phi, comp_sum_terms
from l2d.utils.errors import ParameterError

COSTS = torch.tensor([[0.7, 1.2, 0.1], [1.7, 0.2, 1.1]])


def method(name: str, costs: torch.Tensor, *overrides: str) -> CompSum:
    built = make(check(compose([f"method={name}", *overrides])).method, costs=costs, num_classes=10, decision="argmax")
    assert isinstance(built, CompSum)
    return built


def test_terms_by_hand() -> None:
    """f = (0, log 3), ρ = (1, 2): k = 1: log(1 + 3) = log 4. k = 2: log(e^(−log 3/2) + 1) = log(1 + 1/√3)."""
    terms = comp_sum_terms(torch.tensor([[0.0, math.log(3)]], dtype=torch.float64), torch.tensor([1.0, 2.0]))
    np.testing.assert_allclose(terms, [[math.log(4), math.log(1 + 1 / math.sqrt(3))]])


def test_tdef_and_mild_by_hand() -> None:
    """Scores all 0: every term is log 3. Largest training cost 1.7, so rewards 1 − c/1.7: row 1 sums to 3 − 2/1.7. MILD's rewards
    sum to (p − 1) Σ c: 2·2 and 2·3."""
    tdef = method("tdef", COSTS)
    assert tdef.rho.tolist() == [1, 1, 1]
    loss = tdef.loss(torch.zeros(2, 3), COSTS, torch.zeros(2))
    torch.testing.assert_close(loss, math.log(3) * torch.tensor([3 - 2 / 1.7, 3 - 3 / 1.7]))
    loss = method("mild", COSTS).loss(torch.zeros(2, 3), COSTS, torch.zeros(2))
    torch.testing.assert_close(loss, math.log(3) * torch.tensor([4.0, 6.0]))
    # A test row with a larger cost than any in training earns 0, not less, and does not change the others' rewards.
    tdef = method("tdef", COSTS)
    torch.testing.assert_close(tdef.rewards(torch.tensor([[3.0, 0.0]])), torch.tensor([[0.0, 1.0]]))


def test_mild_uses_each_experts_own_rho() -> None:
    """Cheapest: expert 3 in row 1, expert 2 in rows 2 and 3 → m = (0 → 1, 2, 1)."""
    costs = torch.cat([COSTS, COSTS[1:]])
    torch.testing.assert_close(method("mild_uniform", costs).rho, torch.full((3,), 5 + 1 / 3))
    mild = method("mild_cheapest", costs)
    root = 2 ** (1 / 3)
    torch.testing.assert_close(mild.rho, 5 + torch.tensor([1, root, 1]) / (root + 2))
    f = torch.tensor([[0.0, 1.0, -1.0]])
    sums = [sum(math.exp(float(f[0, j] - f[0, k]) / float(mild.rho[k])) for j in range(3)) for k in range(3)]
    slow = sum(float(costs[0].sum() - costs[0, k]) * math.log(sums[k]) for k in range(3))
    assert float(mild.loss(f, costs[:1], torch.zeros(1))) == pytest.approx(slow, rel=1e-6)


def test_rho_by_the_mass_of_the_rewards() -> None:
    """Expert 1 is right in three rows of four, expert 2 in the other: masses of 3 and 1, of which ρ has the cube roots. Of two
    experts, both rewards are the same where one is right. With three, only the reward mass depends on the rewards."""
    costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    root = 3 ** (1 / 3)
    for rewards in ("complement", "sum_others"):
        rho = method("mild", costs, f"method.rewards={rewards}", "method.rho.offset=0").rho
        torch.testing.assert_close(rho, torch.tensor([root, 1]) / (root + 1))
    three = torch.cat([costs, torch.ones(4, 1)], dim=1).repeat(2, 1)
    mass = torch.tensor([6 / 2 + 2 / 4, 2 / 2 + 6 / 4, 8 / 4])  # rewards (2, 1, 1) or (1, 2, 1), of 4
    root_of = mass ** (1 / 3)
    rho = method("mild", three, "method.rho.offset=0").rho
    torch.testing.assert_close(rho, root_of / root_of.sum())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("rho", [1e-2, 1e3])
def test_extreme_scores(dtype: torch.dtype, rho: float) -> None:
    """f = (1e4, −1e4): the terms are 0 and 2e4/ρ exactly, up to the precision of float32."""
    scores = torch.tensor([[1e4, -1e4]], dtype=dtype, requires_grad=True)
    terms = comp_sum_terms(scores, torch.full((2,), rho))
    spread = float((scores[0, 0] - scores[0, 1]).detach())
    expected = [math.log1p(math.exp(-spread / rho)), spread / rho + math.log1p(math.exp(-spread / rho))]
    np.testing.assert_allclose(terms.detach()[0], expected, rtol=1e-5, atol=1e-7)
    terms.sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def plain(tau: float, rho: float | list[float], decision: str = "argmax") -> CompSum:
    return CompSum(costs=1 - torch.eye(2), num_classes=2, decision=decision, rewards="sum_others", rho=rho, tau=tau)


@pytest.mark.parametrize(("tau", "expected"), [(0.0, 1 / 3), (1.0, math.log(4 / 3)), (2.0, 1 / 4)])
def test_the_methods_loss_is_that_of_its_tau(tau: float, expected: float) -> None:
    """The reward is the first expert's, and u = e^(−log 3) = ⅓: u, log(1 + u) and 1 − 1/(1 + u)."""
    scores, costs = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[0.0, 1.0]])
    assert float(plain(tau, 1.0).loss(scores, costs, torch.zeros(1))) == pytest.approx(expected, rel=1e-6)


def test_tau_by_hand() -> None:
    """u = 3: Φ⁰ = 3, Φ^½ = (√4 − 1)/½ = 2, Φ¹ = log 4, Φ² = (1/4 − 1)/(−1) = 3/4, Φ³ = (1/16 − 1)/(−2) = 15/32."""
    log_sum = torch.tensor(4.0, dtype=torch.float64).log()
    found = [float(comp_sum_phi(log_sum, tau)) for tau in (0.0, 0.5, 1.0, 2.0, 3.0)]
    assert found == pytest.approx([3, 2, math.log(4), 0.75, 15 / 32])


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 5))
def test_tau_against_loops(p: int, seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    f, rewards, rho = rng.normal(size=p), rng.random(p), rng.uniform(0.5, 5, p)
    slow = 0.0
    for k in range(p):
        u = sum(math.exp((f[j] - f[k]) / rho[k]) for j in range(p) if j != k)
        near = abs(tau - 1) < 1e-4  # here the plain formula has lost its digits, and Φ^τ is log(1 + u) + O(τ − 1)
        slow += rewards[k] * (math.log(1 + u) if near else ((1 + u) ** (1 - tau) - 1) / (1 - tau))
    fast = float(comp_sum_loss(torch.tensor(f), torch.tensor(rewards), torch.tensor(rho), tau))
    assert fast == pytest.approx(slow, rel=2e-3 if abs(tau - 1) < 1e-4 else 1e-9)


@pytest.mark.parametrize("tau", [1 + 1e-9, 1.5, 60.0])
@pytest.mark.parametrize("rho", [1e-2, 1e3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_extreme_scores_for_tau_above_one(tau: float, rho: float, dtype: torch.dtype) -> None:
    """The term of the expert that is 2e4 behind is at most 1/(τ − 1), and losses and gradients are finite; below τ = 1 they need not be."""
    scores = torch.tensor([[1e4, -1e4], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    loss = comp_sum_loss(scores, torch.tensor([0.0, 1.0]), torch.full((2,), rho), tau)
    assert torch.isfinite(loss).all()
    assert tau == 1 or float(loss[0].detach()) <= 1 / (tau - 1) * (1 + 1e-6)
    loss.sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


@given(st.integers(2, 4), st.integers(0, 9999), st.floats(0, 1), st.booleans())
def test_posterior_at_the_minimiser_for_every_tau(p: int, seed: int, share: float, above: bool) -> None:
    """At the least Σ_k p_k Φ^τ, found by descent, p̂ = p: for τ ≤ 1, and above it up to 1 + min ρ/max ρ."""
    rng = np.random.default_rng(seed)
    truth = torch.tensor(rng.dirichlet(np.ones(p)) * 0.6 + 0.4 / p)
    rho = torch.tensor(rng.uniform(0.5, 2, p))
    tau = 1 + 0.7 * share * float(rho.min() / rho.max()) if above else share
    np.testing.assert_allclose(comp_sum_posterior(minimise(truth, rho, tau), rho, tau), truth, atol=1e-5)


@pytest.mark.parametrize(
    ("tau", "rho", "first"),
    [(0.5, [1, 1], 8 / 9), (1.0, [1, 1], 4 / 5), (1.5, [1, 1], 2 / 3), (0.0, [1, 2], 4 / 5), (1.0, [1, 2], 5 / 8)],
)
def test_the_methods_posterior_is_that_of_its_tau(tau: float, rho: list[float], first: float) -> None:
    """f = (log 4, 0). The loss is least where p_1 u_1 (1 + u_1)^−τ / ρ_1 = p_2 u_2 (1 + u_2)^−τ / ρ_2, with u_1 = e^(−log 4/ρ_1), u_2 = e^(log 4/ρ_2).

    ρ = (1, 1): u = (¼, 4), p_1/p_2 = 16 · 4^−τ: 8, 4 and 2. ρ = (1, 2): u = (¼, 2), p_1/p_2 = 4 · (5/12)^τ: 4 and 5/3.
    """
    found = plain(tau, rho, "posterior").posterior(torch.tensor([[4.0, 1.0]]).log())
    torch.testing.assert_close(found, torch.tensor([[first, 1 - first]]))


def test_from_which_tau_the_loss_is_least_at_infinity() -> None:
    """ρ = (1, .3): the limit is 1.3. Rewards (.55, .45): as f_1 − f_2 grows from 10 to 30 the loss rises for τ = 1.25 and falls for τ = 1.5.

    Equal ρ: the limit is 2, where the loss is 1 − softmax_k, linear in the softmax: least at a corner. The posterior is refused from there.
    """
    rho, rewards = torch.tensor([1.0, 0.3], dtype=torch.float64), torch.tensor([0.55, 0.45], dtype=torch.float64)
    far = torch.tensor([[10.0, 0.0], [30.0, 0.0]], dtype=torch.float64)
    for tau, rises in ((1.25, True), (1.5, False)):
        near, further = comp_sum_loss(far, rewards, rho, tau).tolist()
        assert (further > near) == rises
        assert plain(tau, [1.0, 0.3]).has_posterior == rises
    assert plain(0.5, 2.0, "posterior").decision == "posterior"
    for tau, spread in ((2.0, [1.0, 1.0]), (1.31, [1.0, 0.3])):
        with pytest.raises(ParameterError, match=rf"^tau={tau}: .*decision=posterior.*a tau below") as caught:
            plain(tau, spread, "posterior")
        assert caught.value.parameter == "tau"
