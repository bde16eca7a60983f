"""m_k and ρ_k."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.costs import sum_others
from l2d.core.rho import build_rho, cheapest_counts, reward_mass, rho_by_rule, rho_shares, tie_groups
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Rho

# Cheapest, first of equals: experts 1, 1, 2 (so m = 2, 1, and 0 lifted to 1 for expert 3).
COSTS = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 1.0]])
RULE = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "cheapest", "groups": None, "values": None}


def test_counts_and_reward_mass_by_hand() -> None:
    assert cheapest_counts(COSTS).tolist() == [2, 1, 1]
    # sum_others: (2,1,1)/4, (1,1,0)/2, (1,2,1)/4, and nothing from a row of zeros: m = 1.25, 1.25, .5 lifted to 1.
    costs = torch.cat([COSTS, torch.zeros(1, 3)])
    assert reward_mass(sum_others(costs)).tolist() == [1.25, 1.25, 1.0]
    assert reward_mass(sum_others(torch.cat([COSTS, COSTS]))).tolist() == [2.5, 2.5, 1.0]


def test_shares_by_hand() -> None:
    """Counts 8, 1, 27 have cube roots 2, 1, 3. With X = 1, 8, 1: roots 2, 4, 3."""
    counts = torch.tensor([8.0, 1.0, 27.0], dtype=torch.float64)
    np.testing.assert_allclose(rho_shares(counts), [1 / 3, 1 / 6, 1 / 2])
    np.testing.assert_allclose(rho_shares(counts, torch.tensor([1.0, 8.0, 1.0])), [2 / 9, 4 / 9, 3 / 9])


@given(st.lists(st.floats(1, 1e5), min_size=2, max_size=6), st.integers(0, 99))
def test_shares_minimise_the_bound(counts: list[float], seed: int) -> None:
    """Corollary 4.2's complexity term Σ_k m_k/ρ_k² at Σρ = 1 is least at the shares: every other point is no better."""
    m = np.array(counts)
    ours = np.sum(m / rho_shares(torch.tensor(m, dtype=torch.float64)).numpy() ** 2)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(m)), size=50)
    assert (np.sum(m / np.maximum(others, 1e-12) ** 2, axis=1) >= ours * (1 - 1e-9)).all()


def test_rules_numbers_and_lists() -> None:
    """theory: ρ̄·share + offset, larger for the expert that is cheapest more often. uniform: ρ̄/p + offset."""
    counts = torch.tensor([8.0, 1.0, 27.0], dtype=torch.float64)
    np.testing.assert_allclose(rho_by_rule("theory", 6.0, 0.5, counts), [2.5, 1.5, 3.5])
    np.testing.assert_allclose(rho_by_rule("uniform", 6.0, 0.5, counts), [2.5, 2.5, 2.5])
    assert build_rho(5.2, COSTS, COSTS).tolist() == [5.2] * 3
    assert build_rho([1, 2, 3.5], COSTS, COSTS).tolist() == [1, 2, 3.5]
    assert build_rho({**RULE, "values": [1, 2, 3.5]}, COSTS, COSTS).tolist() == [1, 2, 3.5]


def test_each_expert_gets_its_own_rho() -> None:
    """Expert 1 is cheapest twice, the others (lifted to) once: shares ∝ ∛2, 1, 1."""
    root = 2 ** (1 / 3)
    np.testing.assert_allclose(build_rho(RULE, COSTS, sum_others(COSTS)), 5 + np.array([root, 1, 1]) / (root + 2))
    mass = build_rho({**RULE, "counts": "reward_mass"}, COSTS, sum_others(COSTS))
    roots = np.array([1.25, 1.25, 1.0]) ** (1 / 3)
    np.testing.assert_allclose(mass, 5 + roots / roots.sum())


def test_groups_share_their_mean() -> None:
    shares = torch.tensor([0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(tie_groups(shares, [[3, 4]]), [0.5, 0.3, 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(tie_groups(shares, None), shares)
    np.testing.assert_allclose(tie_groups(shares, [[1, 4], [3, 2]]), [0.275, 0.225, 0.225, 0.275], rtol=1e-6)


@pytest.mark.parametrize("groups", [[[0, 1]], [[4]], [[1, 1]], [[1, 2], [2, 3]], [[]]])
def test_bad_groups(groups: list[list[int]]) -> None:
    with pytest.raises(ParameterError) as caught:
        tie_groups(torch.ones(3) / 3, groups)
    assert (caught.value.parameter, caught.value.value) == ("rho.groups", groups)


@pytest.mark.parametrize(
    ("rho", "parameter", "words"),
    [
        ({**RULE, "offset": -0.35}, "rho.offset", r"=-0\.35: .*expert 2 .*-0\.04.*total=1 gives it 0\.3"),
        ({**RULE, "total": 0.0, "offset": 0.0}, "rho.offset", "expert 1 .* 0"),
        ([1.0, 2.0], "rho", "3 .* 2"),
        ({**RULE, "values": [1.0, 2.0, 3.0, 4.0]}, "rho.values", "3 .* 4"),
    ],
)
def test_rho_that_does_not_fit_the_data(rho: Rho, parameter: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        build_rho(rho, COSTS, sum_others(COSTS))
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("counts", ["reward_mass", "cheapest"])
def test_the_dearer_expert_gets_the_smaller_rho(counts: str) -> None:
    """Two experts, each alone right on half of the rows, the second at a price of ½: costs (0, 1.5) and (1, .5). Rewards (1.5,
    0) and (.5, 1): mass 1 + ⅓ and ⅔. By cheapest, a price of 1.2 hands it all rows."""
    price = 0.5 if counts == "reward_mass" else 1.2
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(10, 1) + torch.tensor([0.0, price])
    rho = build_rho({**RULE, "counts": counts, "offset": 0.0}, costs, sum_others(costs))
    assert rho[1] < rho[0]
    assert counts == "cheapest" or float(rho[0] / rho[1]) == pytest.approx(2 ** (1 / 3))


def test_which_offsets_of_the_papers_search_give_a_rho() -> None:
    """The appendix searches share_k − 5 to share_k + 5 in steps of 1. Shares are below 1, so five of the eleven make ρ negative."""
    counts = torch.tensor([8.0, 1.0, 27.0], dtype=torch.float64)
    for offset in range(6):
        np.testing.assert_allclose(rho_by_rule("theory", 1.0, offset, counts), offset + np.array([2, 1, 3]) / 6)
    for offset in range(-5, 0):
        assert (rho_shares(counts) + offset < 0).all()
        with pytest.raises(ParameterError):
            rho_by_rule("theory", 1.0, offset, counts)
