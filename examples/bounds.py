"""The margin bound of Theorem 4.1 and Corollary 4.2 for scores f(x, k) = w_k·φ(x): pure functions, float64.

The paper's sample is of pairs (x_i, k_i). In deferral a training point (x_i, y_i) stands for all p pairs at once, pair k with the
weight w_ik = c̄_k(x_i, y_i)/C, where C ≥ Σ_k c̄_k, so that Σ_k w_ik ≤ 1. One weight 1 per row is the paper's sample. The proof for
weights is in docs/theory.md: m_j = Σ_i w_ij, and X_j is the largest norm of a row with w_ij > 0.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

PAPER, OURS = "paper", "ours"


def score_margins(scores: Tensor) -> Tensor:
    """ρ_f(x, k) = f(x, k) − max_{k'≠k} f(x, k'). [..., p] -> [..., p]."""
    top = scores.topk(2, dim=-1)
    is_top = F.one_hot(top.indices[..., 0], scores.shape[-1]).bool()
    return scores - torch.where(is_top, top.values[..., 1:], top.values[..., :1])


def weighted_margin_loss(scores: Tensor, weights: Tensor, rho: Tensor) -> Tensor:
    """Σ_k w_k Φ_{ρ_k}(ρ_f(x, k)), with Φ_ρ(u) = min(1, max(0, 1 − u/ρ)). [m, p], [m, p], [p] -> [m]."""
    return (weights * (1 - score_margins(scores) / rho).clamp(0, 1)).sum(dim=-1)


def weighted_zero_one_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """Σ_k w_k 1[ρ_f(x, k) ≤ 0], the loss that is bounded. [m, p], [m, p] -> [m]."""
    return (weights * (score_margins(scores) <= 0)).sum(dim=-1)


def largest_norms(features: Tensor, weights: Tensor) -> Tensor:
    """X_j: the largest ‖φ(x_i)‖ over S_j = {i: w_ij > 0}, 0 where S_j is empty. [m, d], [m, p] -> [p].

    The maximum is over the points of S_j. The paper takes it over the features of expert j, which makes the first form false.
    """
    norms = features.norm(dim=1)[:, None].expand_as(weights)
    return norms.masked_fill(weights <= 0, 0).amax(dim=0)


def complexity_sum(counts: Tensor, norms: Tensor, rho: Tensor) -> float:
    """Σ_j m_j X_j²/ρ_j²: for ρ fixed in advance, all that it changes beside the empirical loss. [p], [p], [p]."""
    return float((counts * norms**2 / rho**2).sum())


def rademacher_bound(counts: Tensor, norms: Tensor, rho: Tensor, norm_bound: float, m: int) -> float:
    """√p·F/m·√(Σ_j m_j X_j²/ρ_j²) ≥ R̂_{S,ρ}, the first form of Section 4.2, A."""
    return math.sqrt(len(rho) * complexity_sum(counts, norms, rho)) * norm_bound / m


def rademacher_bound_one_norm(counts: Tensor, norms: Tensor, rho: Tensor, norm_bound: float, m: int) -> float:
    """The second form: the largest X in place of every X_j."""
    return rademacher_bound(counts, norms.max().expand_as(rho), rho, norm_bound, m)


def rademacher_monte_carlo(
    features: Tensor, weights: Tensor, rho: Tensor, norm_bound: float, *, draws: int, seed: int
) -> tuple[float, float]:
    """R̂_{S,ρ} of {x ↦ Wφ(x): ‖W‖_F ≤ F} by drawing signs, and its standard error.

    R̂ = (1/m)·E sup_W Σ_i a_i Σ_k ε_ik w_k·φ(x_i), a_i = Σ_k w_ik/ρ_k (1/ρ_j for a point labelled j). The supremum is
    F·‖Σ_i a_i φ(x_i) ε_i^T‖_F.
    """
    scaled = features * (weights / rho).sum(dim=1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    p = weights.shape[1]
    found = []
    for _ in tqdm(range(draws), desc="random signs", leave=False, disable=None):
        signs = torch.randint(0, 2, (len(features), p), generator=generator).to(scaled) * 2 - 1
        found.append((scaled.T @ signs.to(scaled.device)).norm())
    values = torch.stack(found) * norm_bound / len(features)
    return float(values.mean()), float(values.std() / math.sqrt(draws))


def contraction(p: int, constants: str = PAPER) -> float:
    """The factor of R̂: the paper's 4√(2p), or 4.

    The paper's proof takes 2√p/ρ for the Lipschitz constant of v ↦ max_k' c_k'·Φ_ρ(v_k − v_k') in the Euclidean norm. It is √2/ρ,
    because |v_k − v_k'| ≤ √2·‖v‖. The vector contraction adds √2 and symmetrisation 2: 2·√2·√2 = 4.
    """
    return 4.0 if constants == OURS else 4 * math.sqrt(2 * p)


@dataclass(frozen=True)
class MarginBound:
    """The terms of the right-hand side, in units of a loss that lies in [0, 1]."""

    empirical: float
    complexity: float
    confidence: float
    uniform: float

    @property
    def total(self) -> float:
        return self.empirical + self.complexity + self.confidence + self.uniform


def first_margin_bound(
    empirical: float, rademacher: float, p: int, m: int, delta: float, constants: str
) -> MarginBound:
    """The first inequality of Theorem 4.1, for a ρ fixed before S was seen. rademacher: R_m, the mean of R̂ over samples."""
    return MarginBound(empirical, contraction(p, constants) * rademacher, math.sqrt(math.log(1 / delta) / (2 * m)), 0.0)


def margin_bound(
    empirical: float,
    rademacher: float,
    rho: Tensor,
    m: int,
    *,
    delta: float,
    constants: str,
    ceiling: float | None = None,
) -> MarginBound:
    """The second inequality of Theorem 4.1; with `rademacher_bound` for R̂ it is Corollary 4.2.

    ceiling: None for a ρ fixed before S was seen. Otherwise the bound holds for every ρ ∈ (0, ceiling]^p at once, which costs a
    factor 2 on the complexity (ρ_j is rounded down to ceiling·2^(−n_j)) and a union over n ∈ ℕ^p with weights Π_j (6/π²)/n_j².
    """
    p = len(rho)
    log_terms = math.log(2 / delta)
    confidence = 3 * math.sqrt(log_terms / (2 * m))
    complexity = contraction(p, constants) * rademacher
    if ceiling is None:
        return MarginBound(empirical, complexity, confidence, 0.0)
    steps = torch.floor(torch.log2(ceiling / rho)) + 1
    union = p * math.log(math.pi**2 / 6) + 2 * float(steps.log().sum())
    uniform = 3 * math.sqrt((log_terms + union) / (2 * m)) - confidence
    return MarginBound(empirical, 2 * complexity, confidence, uniform)
