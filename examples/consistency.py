"""The decisions of the comp-sum surrogate's minimiser at one x, and their regret (Theorem 5.1, Corollaries 5.2 and 5.3).

At the minimiser f of Σ_k p_k ℓ̃_ρ(f, k), w = p/ρ is stationary for S_kj = softmax_j(f/ρ_k). Every row of S is in the order of f, so
w is too: argmax f = argmax_k p_k/ρ_k. The paper's decision is optimal for every p if and only if all ρ_k are equal.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.core.decisions import argmax_last, comp_sum_posterior
from l2d.methods.comp_sum import comp_sum_loss
from l2d.utils.errors import ParameterError

TOLERANCE = 1e-9
STEPS = 500


def surrogate_gradient(scores: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    """∂/∂f_j Σ_k p_k ℓ̃_ρ(f, k) = Σ_k (p_k/ρ_k)·softmax_j(f/ρ_k) − p_j/ρ_j. [..., p], [..., p], [p] -> [..., p]."""
    shares = torch.softmax(scores[..., None, :] / rho[:, None], dim=-1)
    return ((p / rho)[..., None] * shares).sum(dim=-2) - p / rho


def _hessian(scores: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    shares = torch.softmax(scores[..., None, :] / rho[:, None], dim=-1)
    weighted = (p / rho**2)[..., None] * shares
    return torch.diag_embed(weighted.sum(dim=-2)) - weighted.transpose(-1, -2) @ shares


def surrogate_minimiser(p: Tensor, rho: Tensor) -> Tensor:
    """argmin_f Σ_k p_k ℓ̃_ρ(f, k) with max_k f_k = 0, for positive p [N, p] and ρ [p], by Newton's method in float64.

    p need not sum to 1. The loss is convex. Adding a constant to f does not change it, so the search holds the last score at 0.
    """
    p, rho = p.double(), rho.double()
    scores = rho * p.log()  # the answer where all ρ are equal
    scores = scores - scores[:, -1:]
    for _ in range(STEPS):
        slope = surrogate_gradient(scores, p, rho)
        if bool((_relative(slope, p, rho) <= 1e-14).all()):
            break
        curvature = _hessian(scores, p, rho)[:, :-1, :-1]
        ridge = 1e-14 * curvature.diagonal(dim1=-2, dim2=-1).amax(dim=-1)[:, None, None]
        rounded = curvature + ridge * torch.eye(p.shape[1] - 1, dtype=p.dtype)
        step, failed = torch.linalg.solve_ex(rounded, slope[:, :-1])
        if bool(failed.any()):  # too flat for float64
            raise _not_found(rho, "the Hessian is singular")
        scores = _downhill(scores, torch.nn.functional.pad(step, (0, 1)), p, rho)
    worst = float(_relative(surrogate_gradient(scores, p, rho), p, rho).max())
    if not worst <= TOLERANCE:
        raise _not_found(rho, f"relative gradient {worst:.1e}")
    return scores - scores.amax(dim=-1, keepdim=True)


def _not_found(rho: Tensor, reason: str) -> ParameterError:
    problem = f"the minimiser was not found ({reason}); use values that are less far apart"
    return ParameterError("rho", problem, rho.tolist())


def _relative(slope: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    return slope.abs().amax(dim=-1) / (p / rho).amax(dim=-1)


def _downhill(scores: Tensor, step: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    """Halve each row's step until the loss does not rise (1e-13 allows for rounding near the minimum)."""
    before = comp_sum_loss(scores, p, rho)
    length = torch.ones_like(before)
    for _ in range(60):
        uphill = ~(comp_sum_loss(scores - length[:, None] * step, p, rho) <= before + 1e-13)
        if not bool(uphill.any()):
            break
        length = torch.where(uphill, length / 2, length)
    return scores - length[:, None] * step


@dataclass(frozen=True)
class Verdict:
    """Rows of p: the minimiser, both decisions (counted from 0) and their excess deferral loss at C(x) = 1."""

    scores: Tensor
    posterior: Tensor
    optimal: Tensor
    argmax: Tensor
    by_posterior: Tensor
    argmax_regret: Tensor
    posterior_regret: Tensor


def judge(p: Tensor, rho: Tensor) -> Verdict:
    """p(k|x) [N, p], each row positive with sum 1, and ρ [p]."""
    p, rho = p.double(), rho.double()
    scores = surrogate_minimiser(p, rho)
    posterior = comp_sum_posterior(scores, rho)
    argmax, by_posterior = argmax_last(scores), argmax_last(posterior)
    regret, other = (p.amax(dim=-1) - p.gather(1, chosen[:, None]).squeeze(1) for chosen in (argmax, by_posterior))
    return Verdict(scores, posterior, argmax_last(p), argmax, by_posterior, regret, other)


def worst_regret(rho: Tensor) -> float:
    """sup_p (max_k p_k − p_{argmax p/ρ}) = (ρ_max − ρ_min)/(ρ_max + ρ_min): argmax f's loss at surrogate regret 0, C(x) = 1."""
    top, bottom = float(rho.max()), float(rho.min())
    return (top - bottom) / (top + bottom)
