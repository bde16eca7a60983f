import torch
from hypothesis import given
from hypothesis import strategies as st

import l2d
from l2d.core.decisions import deferral_loss


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(2, 4))
def test_batches_add_up(seed: int, batches: int, p: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores, costs = torch.randn(2, 5 * batches, p, generator=draw).abs()
    metric = l2d.DeferralLoss(num_experts=p)
    for rows in torch.arange(5 * batches).split(5):
        metric(scores[rows], costs[rows])  # adds up batches as it does processes
    torch.testing.assert_close(metric.compute(), deferral_loss(scores, costs).mean())
    torch.testing.assert_close(metric.shares().sum(), torch.tensor(1.0))


def test_by_hand() -> None:
    metric = l2d.DeferralLoss(num_experts=3)
    metric.update(torch.tensor([[0.0, 2.0, 1.0], [5.0, 1.0, 1.0]]), torch.tensor([[9.0, 0.5, 9.0], [0.25, 9.0, 9.0]]))
    assert metric.compute() == 0.375
    assert metric.shares().tolist() == [0.5, 0.5, 0.0]
    # Ties go to the last, as routers decide.
    metric = l2d.DeferralLoss(num_experts=3)
    metric.update(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[9.0, 0.5, 9.0]]))
    assert (float(metric.compute()), metric.shares().tolist()) == (0.5, [0.0, 1.0, 0.0])
    assert not metric.higher_is_better
