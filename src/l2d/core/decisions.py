"""From scores to an expert: the paper's argmax, and the argmax of the recovered conditional reward; and what the argmax costs."""

import torch
from torch import Tensor

from l2d.core.costs import paid

DECISIONS = ("argmax", "posterior")


def at_least_float32(scores: Tensor) -> Tensor:
    """Half precision cannot hold the differences between scores of 1e4, nor their ratio to a small ρ."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def argmax_last(scores: Tensor) -> Tensor:
    """argmax_k f(x, k), ties to the highest index. scores [..., p] -> [...]."""
    return scores.shape[-1] - 1 - scores.flip(-1).argmax(dim=-1)


def deferral_loss(scores: Tensor, costs: Tensor) -> Tensor:
    """L_def(f, x, y) = c_{k*}(x, y), k* = argmax_k f(x, k), ties to the highest index. [B, p], [B, p] -> [B]."""
    return paid(costs, argmax_last(scores))


def stationary_log(log_matrix: Tensor) -> Tensor:
    """The log of the stationary distribution of row-stochastic matrices given as logs, [..., p, p] -> [..., p].
    Grassmann-Taksar-Heyman elimination: states are removed one by one, and each state's flow goes to those that remain. It only
    adds, multiplies and divides positive numbers, so in logs nothing cancels and nothing underflows."""
    p = log_matrix.shape[-1]
    block, entering = log_matrix, []
    for last in range(p - 1, 0, -1):
        into = block[..., :last, last] - torch.logsumexp(block[..., last, :last], dim=-1, keepdim=True)
        entering.append(into)
        block = torch.logaddexp(block[..., :last, :last], into[..., :, None] + block[..., last, None, :last])
    log_w = torch.zeros_like(log_matrix[..., 0, :1])
    for into in reversed(entering):
        log_w = torch.cat([log_w, torch.logsumexp(log_w + into, dim=-1, keepdim=True)], dim=-1)
    return torch.log_softmax(log_w, dim=-1)


def comp_sum_posterior(scores: Tensor, rho: Tensor, tau: float = 1.0) -> Tensor:
    """p̂(k|x), the conditional reward recovered from the comp-sum surrogate's minimiser. [..., p], [p] -> [..., p].

    At the minimum of Σ_k p_k ℓ̃_ρ(f, x, k) the gradient is 0: Σ_k (p_k/ρ_k) S_kj = p_j/ρ_j with S_kj = softmax_j(f/ρ_k). So p/ρ is
    stationary for S, and p̂ ∝ ρ ⊙ stationary(S). For equal ρ this is softmax(f/ρ).

    Φ^τ instead of the log has the slope (1 + u_k)^{−τ} with 1 + u_k = 1/S_kk, so p_k becomes p_k·S_kk^{τ−1} in the same sum. So
    p̂ ∝ ρ ⊙ stationary(S) ⊙ diag(S)^{1−τ}; for equal ρ, softmax(f/ρ)^{2−τ}."""
    scores = at_least_float32(scores)
    # Before the division: large scores would lose their differences.
    scores = scores - scores.amax(dim=-1, keepdim=True)
    rho = rho.to(scores)
    log_matrix = torch.log_softmax(scores[..., None, :] / rho[:, None], dim=-1)
    log_p = stationary_log(log_matrix) + rho.log()
    if tau != 1:
        log_p = log_p + (1 - tau) * log_matrix.diagonal(dim1=-2, dim2=-1)
    return torch.softmax(log_p, dim=-1)
