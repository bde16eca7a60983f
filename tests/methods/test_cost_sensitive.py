"""Cost-sensitive margin losses: the derivation, what the last appendix says of StructSVM and CRF, and deferral as a case of it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.core.costs import cheapest, sum_others
from l2d.core.decisions import argmax_last, deferral_loss
from l2d.methods import cost_sensitive as cs
from l2d.methods.comp_sum import comp_sum_loss, comp_sum_phi, comp_sum_terms
from l2d.methods.cost_sensitive import CostSensitive, comp_sum_psi, hinge, max_form, pair_margins, sum_form

cases = given(st.integers(2, 5), st.integers(0, 9999))
COSTS = torch.tensor([[0.7, 1.2, 0.1], [1.7, 0.2, 1.1]], dtype=torch.float64)


def draw(p: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores (ties among them), costs in [0, 1] with a zero diagonal, ρ; float64 [4, p], [4, p, p], [p]."""
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(4, p))
    scores[0] = rng.integers(-1, 2, p)
    costs = rng.random((4, p, p)) * (1 - np.eye(p))
    return torch.tensor(scores), torch.tensor(costs), torch.tensor(rng.uniform(0.2, 5, p))


def method(costs: torch.Tensor = COSTS, **changes: Any) -> CostSensitive:
    arguments = {"pairs": "regret", "psi": "comp_sum", "form": "max", "rewards": "sum_others", "rho": 1.0, "tau": 1.0}
    return CostSensitive(costs=costs, num_classes=10, decision="argmax", **{**arguments, **changes})


# The losses of Cortes et al. 2016 that the last appendix compares ours with.


def own(pairs: torch.Tensor) -> torch.Tensor:
    return torch.eye(pairs.shape[-1], dtype=torch.bool)


def struct_svm(costs: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
    """max_{k'≠k} c·max(0, 1 − u), StructSVM (Tsochantaridis et al. 2005; in Cortes et al. 2016): the cost scales the slack."""
    return max_form(costs, hinge(margins))


def max_margin_markov(costs: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
    """max_{k'≠k} max(0, c − u), M3N (Taskar et al. 2003; in Cortes et al. 2016): the cost is the margin."""
    return (costs - margins).clamp(min=0).masked_fill(own(margins), 0).amax(dim=-1)


def crf(costs: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
    """log Σ_k' e^{c − u}, k' = k included with 1 (Gimpel and Smith 2010; in Cortes et al. 2016)."""
    return (costs - margins).masked_fill(own(margins), 0).logsumexp(dim=-1)


def multiplicative_margin(costs: torch.Tensor, margins: torch.Tensor, largest: float) -> torch.Tensor:
    """min(M, max_{k'≠k} c·max(0, 1 − u)): the multiplicative margin loss of Cortes et al. 2016, M being the largest cost."""
    return struct_svm(costs, margins).clamp(max=largest)


def test_rewards_are_in_units_of_the_largest_cost() -> None:
    torch.testing.assert_close(method(rewards="complement").rewards(COSTS), 1 - COSTS / 1.7, atol=1e-6, rtol=0)


def test_by_hand() -> None:
    """f = (0, 1, −1), ρ = 2, k = 1: margins −½ and ½ over the others, costs ½ and 1.

    Hinge: 3/2 and 1/2, times costs 3/4 and 1/2. Φ_ρ: 1 and 1/2, times costs 1/2 and 1/2. M3N: ½ + ½ and 1 − ½.
    CRF: log(1 + e^{1} + e^{1/2}).
    """
    scores, rho = torch.tensor([[0.0, 1.0, -1.0]]), torch.full((3,), 2.0)
    costs = torch.tensor([[[9.0, 0.5, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])  # the diagonal is not looked at
    u = pair_margins(scores, rho)
    assert u[0, 0].tolist() == [0, -0.5, 0.5]
    assert float(max_form(costs, hinge(u))[0, 0]) == 0.75 == float(struct_svm(costs, u)[0, 0])
    assert float(sum_form(costs, hinge(u))[0, 0]) == 1.25
    assert float(max_form(costs, cs.unit_margin_loss(u))[0, 0]) == 0.5
    assert float(max_margin_markov(costs, u)[0, 0]) == 1
    assert float(crf(costs, u)[0, 0]) == pytest.approx(math.log(1 + math.e + math.exp(0.5)))
    expected = math.log((1 + math.exp(0.5)) ** 0.5 + 1 + math.exp(-0.5))
    assert float(cs.log_sum_form(costs, comp_sum_psi(u, 1.0))[0, 0]) == pytest.approx(expected)
    assert float(multiplicative_margin(costs, u, 0.6)[0, 0]) == pytest.approx(0.6)


@cases
def test_against_loops(p: int, seed: int) -> None:
    scores, costs, rho = draw(p, seed)
    u = pair_margins(scores, rho)
    found = {
        "max": max_form(costs, hinge(u)),
        "sum": sum_form(costs, comp_sum_psi(u, 2.5)),
        "log": cs.log_sum_form(costs, comp_sum_psi(u, 1.0)),
        "margin": max_form(costs, cs.unit_margin_loss(u)),
        "m3n": max_margin_markov(costs, u),
        "crf": crf(costs, u),
    }
    f, c = scores.numpy(), costs.numpy()
    for i in range(4):
        for k in range(p):
            t = {j: float((f[i, k] - f[i, j]) / rho[k]) for j in range(p) if j != k}
            slow = {
                "max": max(c[i, k, j] * max(0, 1 - t[j]) for j in t),
                "sum": sum(c[i, k, j] * ((1 + math.exp(-t[j])) ** -1.5 - 1) / -1.5 for j in t),
                "log": math.log(sum((1 + math.exp(-t[j])) ** c[i, k, j] for j in t)),
                "margin": max(c[i, k, j] * min(1, max(0, 1 - t[j])) for j in t),
                "m3n": max(max(0, c[i, k, j] - t[j]) for j in t),
                "crf": math.log(1 + sum(math.exp(c[i, k, j] - t[j]) for j in t)),
            }
            assert {name: float(value[i, k]) for name, value in found.items()} == pytest.approx(slow, rel=1e-9)


@cases
def test_margin_loss_bounds_the_zero_one_loss(p: int, seed: int) -> None:
    """Section 4.1: c(x, k, 𝖿(x)) 1[ρ_f(x, k) ≤ 0] ≤ L_ρ(f, x, k), ties included."""
    scores, costs, rho = draw(p, seed)
    bound = max_form(costs, cs.unit_margin_loss(pair_margins(scores, rho)))
    chosen = argmax_last(scores)
    zero_one = costs.gather(2, chosen[:, None, None].expand(4, p, 1))[..., 0]  # the cost is 0 where k is chosen
    assert (zero_one <= bound).all()


@given(st.integers(2, 5), st.integers(0, 9999), st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0]))
def test_max_is_below_sum_and_log_sum(p: int, seed: int, tau: float) -> None:
    """The appendix's last steps, and L_ρ ≤ max_{k'} c·Ψ where Φ_ρ ≤ Ψ: the hinge, the exponential, the logistic in base 2.

    For the other τ only max ≤ sum is tested: Φ_ρ ≤ Ψ is false as printed (test_consistency.py).
    """
    scores, costs, rho = draw(p, seed)
    u = pair_margins(scores, rho)
    psi = comp_sum_psi(u, tau)
    assert (max_form(costs, psi) <= sum_form(costs, psi) + 1e-12).all()
    assert (max_form(costs, psi) <= cs.log_sum_form(costs, psi) + 1e-12).all()
    margin = max_form(costs, cs.unit_margin_loss(u))
    for above in (hinge(u), comp_sum_psi(u, 0.0), comp_sum_psi(u, 1.0) / math.log(2)):
        assert (margin <= max_form(costs, above) + 1e-12).all()


def test_the_factor_belongs_inside_the_max() -> None:
    """For τ > 1 the printed 1/(1 − τ)·max{c·((1 + e^{−u})^{1−τ} − 1)} has turned the max into a min: τ = 2, margins 0 and −log
    3, c = 1: ½ and ¾; as printed −max(−½, −¾) = ½."""
    brackets = [(1 + 1) ** -1.0 - 1, (1 + 3) ** -1.0 - 1]
    printed = 1 / (1 - 2) * max(brackets)
    scores = torch.tensor([[0.0, 0.0, math.log(3)]], dtype=torch.float64)
    psi = comp_sum_psi(pair_margins(scores, torch.ones(3)), 2.0)
    ours = float(max_form(torch.ones(1, 3, 3), psi)[0, 0])
    assert printed == 0.5
    assert ours == pytest.approx(0.75)


@given(st.integers(2, 5), st.integers(0, 9999), st.floats(0, 4))
def test_class_independent_costs(p: int, seed: int, tau: float) -> None:
    """c(x, k, k') = C for all k' ≠ k: max ≤ C·Φ^τ(Σ_{k'≠k} e^{−u}) ≤ sum, the middle being the term of MILD and TDEF.

    The first since Φ^τ grows, the second since it is concave and 0 at 0. For τ = 1 the first is the appendix's step; for τ = 0 the
    middle is the sum.
    """
    scores, _, rho = draw(p, seed)
    same = torch.full((4, p, p), 0.7, dtype=torch.float64)
    psi = comp_sum_psi(pair_margins(scores, rho), tau)
    middle = 0.7 * comp_sum_phi(comp_sum_terms(scores, rho), tau)
    slack = 1e-9 * (1 + middle)
    assert (max_form(same, psi) <= middle + slack).all()
    assert (middle <= sum_form(same, psi) + slack).all()
    exponential = comp_sum_psi(pair_margins(scores, rho), 0.0)
    sums = 0.7 * comp_sum_phi(comp_sum_terms(scores, rho), 0.0)
    torch.testing.assert_close(sum_form(same, exponential), sums, rtol=1e-6, atol=1e-9)


@cases
def test_deferral_is_mild(p: int, seed: int) -> None:
    """Section 5.3: E_{k ~ c̄/C}[C·log(1 + Σ_{k'≠k} e^{−u})] is Σ_k c̄_k ℓ̃_ρ, MILD's loss."""
    scores, _, rho = draw(p, seed)
    rewards = sum_others(torch.tensor(np.random.default_rng(seed).random((4, p))))
    total = rewards.sum(1)
    u = pair_margins(scores, rho)
    for i in range(4):
        others = [sum(math.exp(-float(u[i, k, j])) for j in range(p) if j != k) for k in range(p)]
        slow = sum(float(rewards[i, k] / total[i] * total[i]) * math.log(1 + others[k]) for k in range(p))
        assert float(comp_sum_loss(scores, rewards, rho)[i]) == pytest.approx(slow, rel=1e-9)


def test_deferral_costs_as_printed_are_constant() -> None:
    """Section 5.3 prints c(x, j, k') = C(x)·1[j = k'], which leaves C·Ψ(0), whatever the scores. 1[j ≠ k'] is meant."""
    for f in ([0.0, 1.0, 2.0], [5.0, -3.0, 0.0]):
        for j in range(3):
            printed = max((0.8 if j == k else 0.0) * math.log1p(math.exp(f[k] - f[j])) for k in range(3))
            assert printed == 0.8 * math.log(2)


@cases
def test_against_struct_svm_and_crf(p: int, seed: int) -> None:
    """The last appendix, for costs in [0, 1]: with the hinge ours is StructSVM's loss; with the logistic loss it is at most
    CRF's; with Φ_ρ it is at most the multiplicative margin loss, for any costs."""
    scores, costs, rho = draw(p, seed)
    u = pair_margins(scores, rho)
    assert torch.equal(max_form(costs, hinge(u)), struct_svm(costs, u))
    assert (max_form(costs, comp_sum_psi(u, 1.0)) <= crf(costs, u) + 1e-12).all()
    largest = 3 * float(costs.max())
    above = multiplicative_margin(3 * costs, u, largest)
    assert (max_form(3 * costs, cs.unit_margin_loss(u)) <= above + 1e-12).all()


def pair(cost: float, margin: float, p: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Costs and margins of one k against p − 1 others, all alike."""
    scores = torch.tensor([[margin, *[0.0] * (p - 1)]], dtype=torch.float64)
    return torch.full((1, p, p), cost, dtype=torch.float64), pair_margins(scores, torch.ones(p))


def test_where_the_comparison_fails() -> None:
    """If the hinge-type surrogate is read as M3N's max(0, c − u), ours is not below it: c = ½, u = .8 gives .5·.2 = .1 against 0.
    Nor above: u = −1 gives .5·2 = 1 against 1.5.

    Against CRF costs above 1 fail: c = 2, u = −5: 2·log(1 + e⁵) ≈ 10.01 > log(1 + e⁷) ≈ 7.00. So does the log-sum form, which
    never falls below log(p − 1): p = 3, c = ½, u = 10: log 2 > log(1 + 2e^{−9.5}).
    """
    costs, u = pair(0.5, 0.8)
    assert float(max_form(costs, hinge(u))[0, 0]) == pytest.approx(0.1)
    assert float(max_margin_markov(costs, u)[0, 0]) == 0
    costs, u = pair(0.5, -1.0)
    assert float(max_form(costs, hinge(u))[0, 0]) == 1 < float(max_margin_markov(costs, u)[0, 0]) == 1.5
    costs, u = pair(2.0, -5.0)
    assert float(max_form(costs, comp_sum_psi(u, 1.0))[0, 0]) == pytest.approx(10.0134, abs=1e-4)
    assert float(crf(costs, u)[0, 0]) == pytest.approx(7.0009, abs=1e-4)
    costs, u = pair(0.5, 10.0, p=3)
    assert float(cs.log_sum_form(costs, comp_sum_psi(u, 1.0))[0, 0]) > 0.69
    assert float(crf(costs, u)[0, 0]) < 2e-4


@cases
def test_max_of_hinges_by_rewards_is_least_at_equal_scores(p: int, seed: int) -> None:
    """Σ_k c̄_k max(0, 1 − ρ_f(x, k)) ≥ Σ_k c̄_k where no c̄_k is more than half of the sum, as with sum_others and p ≥ 3.

    With M the highest score and s the next, the slopes are at least (M − s)·(Σ_{k≠a} c̄_k − c̄_a) ≥ 0, a being the highest. So
    the hinge in the max form cannot learn MILD's rewards; the sum of hinges can.
    """
    p += 1
    rng = np.random.default_rng(seed)
    scores, rewards = torch.tensor(rng.normal(size=(4, p))), sum_others(torch.tensor(rng.random((4, p))))
    psi = hinge(pair_margins(scores, torch.ones(p)))
    loss = (rewards * max_form(torch.ones(4, p, p), psi)).sum(1)
    assert (loss >= rewards.sum(1) - 1e-12).all()
    costs = torch.tensor([[0.0, 1.0, 1.0]])
    step = torch.tensor([[0.1, 0.0, 0.0]])
    summed = method(costs, pairs="rewards", psi="hinge", form="sum")
    assert float(summed.loss(step, costs, torch.zeros(1))) < float(summed.loss(0 * step, costs, torch.zeros(1)))


def test_regret_by_hand() -> None:
    """Row 1: the cheapest is expert 3 (.1), regrets .6 and 1.1; f = (0, 1, 2), ρ = 1: margins 2 and 1. max: the larger of
    .6·log(1 + e^{−2}) and 1.1·log(1 + e^{−1})."""
    f = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    terms = [0.6 * math.log1p(math.exp(-2)), 1.1 * math.log1p(math.exp(-1))]
    assert float(method().loss(f, COSTS[:1], torch.zeros(1))) == pytest.approx(max(terms))
    assert float(method(form="sum").loss(f, COSTS[:1], torch.zeros(1))) == pytest.approx(sum(terms))
    logs = math.log(sum(math.exp(term) for term in terms))
    assert float(method(form="log_sum").loss(f, COSTS[:1], torch.zeros(1))) == pytest.approx(logs)
    flat = method(psi="rho_margin").loss(-f, COSTS[:1], torch.zeros(1))  # expert 3 last: Φ = 1 for both
    assert float(flat) == pytest.approx(1.1)
    tau = method(tau=0.0, form="sum").loss(f, COSTS[:1], torch.zeros(1))
    assert float(tau) == pytest.approx(0.6 * math.exp(-2) + 1.1 * math.exp(-1))


@cases
def test_regret_is_above_the_deferral_loss(p: int, seed: int) -> None:
    """With the hinge: c_{k*} − min_k c_k ≤ the loss, for any ρ and any scores."""
    rng = np.random.default_rng(seed)
    scores, costs = torch.tensor(3 * rng.normal(size=(8, p))), torch.tensor(2 * rng.random((8, p)))
    built = method(costs, psi="hinge", rho=float(rng.uniform(0.2, 5)))
    regret = deferral_loss(scores, costs) - costs.gather(1, cheapest(costs)[:, None])[:, 0]
    assert (regret <= built.loss(scores, costs, torch.zeros(8)) + 1e-9).all()


def test_hinge_by_hand() -> None:
    """Scores 0: each of the two hinges of an expert is 1, so 2·Σ c̄ = 2·2·Σ c: 8 and 12. f = (0, 0, 1), ρ = 1, row 1, c̄ = (1.3,
    .8, 1.9): experts 1 and 2: 1 + 2 = 3; expert 3: 0."""
    chosen = check(compose(["method=hinge", "method.rho=1.0"])).method
    built = make(chosen, costs=COSTS, num_classes=10, decision="argmax")
    assert built.loss(torch.zeros(2, 3), COSTS, torch.zeros(2)).tolist() == pytest.approx([8, 12])
    lifted = built.loss(torch.tensor([[0.0, 0.0, 1.0]]), COSTS[:1], torch.zeros(1))
    assert float(lifted) == pytest.approx(3 * (1.3 + 0.8))


@settings(max_examples=40)
@cases
def test_each_step_of_section_4_1(p: int, seed: int) -> None:
    """L ≤ c·Φ_ρ(ρ_f) = c·Φ_ρ(f_k − f_𝖿) ≤ L_ρ with c = c(x, k, 𝖿(x)), for every k, ties included."""
    scores, costs, rho = draw(p, seed)
    top = max_form(costs, cs.unit_margin_loss(pair_margins(scores, rho)))
    for i, f in enumerate(scores.tolist()):
        chosen = max(range(p), key=lambda j: (f[j], j))
        for k in range(p):
            margin, c = f[k] - max(f[j] for j in range(p) if j != k), float(costs[i, k, chosen])
            by_margin, by_chosen = (c * min(1, max(0, 1 - u / float(rho[k]))) for u in (margin, f[k] - f[chosen]))
            assert c * (margin <= 0) <= by_margin == pytest.approx(by_chosen)
            assert by_chosen <= float(top[i, k]) + 1e-12


def test_a_cost_independent_of_both_experts_leaves_a_constant() -> None:
    """Section 5.1: c(x, k, k') = C(x) for all k', k itself included, makes that term the largest: C·Φ(0), whatever the scores."""
    for f in ([0.0, 1.0, 2.0], [5.0, -3.0, 0.0]):
        for k in range(3):
            assert max(0.8 * min(1, max(0, 1 - (f[k] - f[j]))) for j in range(3)) == 0.8


@pytest.mark.parametrize("experts", [2, 3, 5])
def test_the_surrogate_is_not_above_the_margin_loss(experts: int) -> None:
    """Section 5.1: L_ρ ≤ C log[1 + max e] ≤ C log Σ e. Two experts tie, the others are far behind: 1 against log 2 = .693 twice.
    The second step holds, and in base 2 so does the first."""
    scores = torch.tensor([[0.0, 0.0, *[-40.0] * (experts - 2)]], dtype=torch.float64)
    u, ones = pair_margins(scores, torch.ones(experts)), torch.ones(1, experts, experts)
    margin, logistic = (float(max_form(ones, psi)[0, 0]) for psi in (cs.unit_margin_loss(u), comp_sum_psi(u, 1.0)))
    summed = float(comp_sum_terms(scores, torch.ones(experts))[0, 0])
    assert margin == 1 > logistic == pytest.approx(math.log(2))
    assert logistic <= summed == pytest.approx(math.log(2))
    assert margin <= logistic / math.log(2) + 1e-12


@given(st.floats(0.01, 6))
def test_no_comp_sum_loss_but_the_exponential_is_above_the_margin_loss(tau: float) -> None:
    """At margin 0 Φ_ρ = 1, and Φ^τ(1) = ∫_1^2 t^{−τ} dt < 1 for τ > 0; for τ = 0 it is 1."""
    zero = torch.zeros(1, dtype=torch.float64)
    assert float(comp_sum_psi(zero, tau)) < 1 == float(cs.unit_margin_loss(zero)) == float(comp_sum_psi(zero, 0.0))


@given(st.floats(0, 1), st.floats(-20, 20), st.floats(-20, 20))
def test_comp_sum_losses_are_convex_up_to_tau_one(tau: float, one: float, other: float) -> None:
    """τ = 2: Ψ(u) = 1/(1 + e^u) is .881 at −2, .731 at −1, ½ at 0: above the chord's .690. All fall with u."""
    left, middle, right = comp_sum_psi(torch.tensor([one, (one + other) / 2, other], dtype=torch.float64), tau).tolist()
    assert middle <= (left + right) / 2 * (1 + 1e-9) + 1e-12
    assert (one < other) <= (left >= right)
    left, middle, right = comp_sum_psi(torch.tensor([-2.0, -1.0, 0.0], dtype=torch.float64), 2.0).tolist()
    assert [left, middle, right] == pytest.approx([0.8808, 0.7311, 0.5], abs=1e-4)
    assert middle > (left + right) / 2


def test_the_guarantee_with_the_logistic_loss_fails() -> None:
    """The last bound of Section 4.2, A: F = {0}, so no complexity; the label is always expert 1 and the tie goes to expert 2:
    E_L = 1. On the right log 2, and at m = 10,000, δ = .05 a confidence of 3√(log 40/20,000) = .041. In base 2 it would hold."""
    psi = float(comp_sum_psi(torch.zeros(1, dtype=torch.float64), 1.0))
    confidence = 3 * math.sqrt(math.log(40) / 20_000)
    assert int(argmax_last(torch.zeros(2))) == 1
    assert psi + confidence == pytest.approx(0.734, abs=1e-3)
    assert psi / math.log(2) + confidence > 1
