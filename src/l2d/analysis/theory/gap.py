"""The minimizability gap on a finite domain (Section 5.2): M(F) = min_{f∈F} E_x[ℓ(f, x)] − E_x[min_{f∈F} ℓ(f, x)]."""

import torch
from torch import Tensor

from l2d.analysis.theory.consistency import surrogate_minimiser
from l2d.methods.comp_sum import comp_sum_loss
from l2d.utils.errors import L2DError


def finite_gap(losses: Tensor, weights: Tensor) -> float:
    """Of finitely many hypotheses, for any loss. losses [H, n]: E[ℓ(f_h, x_i)|x_i]; weights [n]: the distribution of x."""
    best_in_class = (losses * weights).sum(dim=1).min()
    pointwise = (losses.amin(dim=0) * weights).sum()
    return float(best_in_class - pointwise)


def linear_gap(features: Tensor, rewards: Tensor, rho: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """The comp-sum surrogate's gap for {x ↦ Wφ(x)}, all W, and the best W [p, d].

    features φ [n, d], no row of zeros; rewards E[c̄_k|x] > 0 [n, p]; weights [n]. At one point Wφ(x) takes every value, so the
    pointwise minimum is that over all scores; the best W is found by L-BFGS (the loss is convex in W).
    """
    features, rewards, rho, weights = (tensor.double() for tensor in (features, rewards, rho, weights))
    if not bool((rewards > 0).all()) or not bool((features != 0).any(dim=1).all()):
        raise L2DError("linear_gap: every reward must be positive and no row of the features zero")
    pointwise = (weights * comp_sum_loss(surrogate_minimiser(rewards, rho), rewards, rho)).sum()
    head = torch.zeros(rewards.shape[1], features.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [head], max_iter=5000, tolerance_grad=1e-11, tolerance_change=0, history_size=50, line_search_fn="strong_wolfe"
    )

    def expected() -> Tensor:
        return (weights * comp_sum_loss(features @ head.T, rewards, rho)).sum()

    def closure() -> float:
        optimizer.zero_grad()
        loss = expected()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return float(expected().detach() - pointwise), head.detach()
