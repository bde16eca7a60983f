"""The target: the deferral loss, and the cost-sensitive loss over (x, k) that equals it in expectation (Section 3)."""

import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last


def deferral_loss(scores: Tensor, costs: Tensor) -> Tensor:
    """L_def(f, x, y) = c_{k*}(x, y), k* = argmax_k f(x, k), ties to the highest index. [B, p], [B, p] -> [B]."""
    return paid(costs, argmax_last(scores))


def cost_sensitive_loss(scores: Tensor, rewards: Tensor) -> Tensor:
    """Σ_k c̄_k 1[k ≠ k*]: Lemmas 1 and 2 without their constants. [B, p], [B, p] -> [B]. The paper writes 1[ρ_f(x, k) ≤ 0] for
    1[k ≠ k*]; the two differ where scores tie, and only this one keeps the lemmas true there."""
    chosen = torch.nn.functional.one_hot(argmax_last(scores), scores.shape[-1]).bool()
    return rewards.masked_fill(chosen, 0).sum(dim=-1)
