"""The plain functions are the losses of the methods."""

import math

import pytest
import torch

from l2d import functional
from l2d.assembly.build import make_method
from l2d.config import check, compose
from l2d.core.rho import cheapest_counts
from l2d.methods.cross_entropy import inverse_frequency_weights

DRAW = torch.Generator().manual_seed(0)
SCORES, COSTS = torch.randn(40, 3, generator=DRAW), torch.rand(40, 3, generator=DRAW, dtype=torch.float64)
LABELS = torch.zeros(40, dtype=torch.int64)
WEIGHTS = inverse_frequency_weights(cheapest_counts(COSTS))


@pytest.mark.parametrize(
    ("overrides", "loss"),
    [
        (["method=mild", "method.rho.values=[1,2,3]"], functional.mild_loss(SCORES, COSTS, torch.tensor([1.0, 2, 3]))),
        (["method=mild", "method.rho=0.5", "method.tau=1.5"], functional.mild_loss(SCORES, COSTS, 0.5, tau=1.5)),
        (["method=tdef"], functional.tdef_loss(SCORES, COSTS)),
        (["method=tdef", "method.rho=2", "method.tau=1.5"], functional.tdef_loss(SCORES, COSTS, 2.0, 1.5)),
        (["method=ce"], functional.ce_loss(SCORES, COSTS)),
        (["method=cwce"], functional.cwce_loss(SCORES, COSTS, WEIGHTS)),
    ],
)
def test_equal_to_the_methods(overrides: list[str], loss: torch.Tensor) -> None:
    method = make_method(check(compose(overrides)), COSTS, 0)
    torch.testing.assert_close(loss, method.loss(SCORES, COSTS, LABELS), check_dtype=False)


def test_the_scale_of_tdef_by_hand() -> None:
    """Costs 2 and 0.5 of at most 2: rewards 0 and ¾, each times log 2."""
    loss = functional.tdef_loss(torch.zeros(1, 2), torch.tensor([[2.0, 0.5]]), scale=2.0)
    torch.testing.assert_close(loss, torch.tensor([0.75 * math.log(2)]))


def test_gradients() -> None:
    scores = SCORES.double().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: functional.mild_loss(f, COSTS, torch.tensor([1.0, 2, 3])), scores)


def test_names() -> None:
    assert all(hasattr(functional, name) for name in functional.__all__)


def test_the_caller_may_ask_for_another_decision() -> None:
    method = make_method(check(compose(["method=mild", "method.rho.values=[1,2,3]"])), COSTS, 0)
    assert torch.equal(method.utilities(SCORES, "posterior"), method.posterior(SCORES))
    assert torch.equal(method.utilities(SCORES), SCORES)
