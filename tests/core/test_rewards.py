"""c̄_k of Lemmas 1 and 2."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.costs import complement, complement_scale, sum_others

COSTS = torch.tensor([[0.7, 1.2, 0.1], [1.7, 0.2, 1.1]])


def test_sum_others_by_hand() -> None:
    """Row 1: 1.2 + .1, .7 + .1, .7 + 1.2."""
    torch.testing.assert_close(sum_others(COSTS), torch.tensor([[1.3, 0.8, 1.9], [1.3, 2.8, 1.9]]))


def test_complement_by_hand() -> None:
    """The largest cost, 1.7, is the scale: rewards 1 − c/1.7, and nothing for a cost above it."""
    scale = complement_scale(COSTS)
    assert scale == COSTS.max()
    torch.testing.assert_close(complement(torch.tensor([0.0, 0.85, 1.7, 3.4]), scale), torch.tensor([1, 0.5, 0, 0]))
    assert complement_scale(torch.tensor([[0.0, 0.5]])) == 1.0
    assert complement(torch.tensor([0.0, 1.0])).tolist() == [1.0, 0.0]
    # 20 % noise makes one of ten thousand costs nearly twice as large; by that scale all rewards would be above .4.
    costs = torch.tensor([[0.0, 1.0], [1.9, 0.3]], dtype=torch.float64)
    assert complement_scale(costs) == 1.9
    assert complement_scale(costs, 1.0) == 1.0
    assert complement_scale(costs, 1.4) == 1.4
    assert complement_scale(costs, 0.5) == 1.0


@given(st.lists(st.lists(st.floats(0, 1e6, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_properties(rows: list[list[float]]) -> None:
    """Never negative, also after rounding, and a cheaper expert never earns less: the sign of a reward is not the sign of a cost."""
    costs = torch.tensor(rows)
    for rewards in (sum_others(costs), complement(costs, complement_scale(costs))):
        assert (rewards >= 0).all()
        for c, r in zip(costs, rewards, strict=True):
            assert (r[c.argmin()] >= r - 1e-6 * r.abs().max()).all()
    # Σ_k c̄_k = (p − 1) Σ_k c_k
    torch.testing.assert_close(sum_others(costs.double()).sum(1), 2 * costs.double().sum(1))


def test_rewards_are_not_inversely_proportional_to_costs() -> None:
    """Costs (1, 2, 4): 1/c has ratios 4 : 2 : 1, the rewards 6 : 5 : 3 and, with the scale 4, ¾ : ½ : 0. If c_3 alone rises,
    c̄_3 stays 3: only its share falls, from 3/14 to 3/22. Of two experts, sum_others swaps the costs: c̄_1/c̄_2 = c_2/c_1."""
    costs = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 8.0]])
    assert sum_others(costs).tolist() == [[6, 5, 3], [10, 9, 3]]
    assert complement(costs[0], complement_scale(costs[:1])).tolist() == [0.75, 0.5, 0]
    torch.testing.assert_close(sum_others(torch.tensor([0.2, 0.6])), torch.tensor([0.6, 0.2]))
