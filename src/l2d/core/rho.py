"""ρ, the confidence margin of each expert, from how often each expert is the one to choose (Section 4.2, B)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from l2d.core.costs import cheapest
from l2d.utils.errors import L2DError, check_choice

RULES = ("uniform", "theory")
KEYS = ("rule", "total", "offset", "counts", "groups", "values")
COUNTS = ("cheapest", "reward_mass")


def cheapest_counts(costs: Tensor) -> Tensor:
    """m_k = number of training points whose cheapest expert is k, at least 1. costs [N, p] -> float64 [p]."""
    counts = torch.bincount(cheapest(costs), minlength=costs.shape[1])
    return counts.to(torch.float64).clamp(min=1)


def reward_mass(rewards: Tensor) -> Tensor:
    """m_k = Σ_i c̄_k/Σ_j c̄_j, at least 1: the size of S_k under the distribution P of Eq. (new).

    rewards [N, p] -> float64 [p]. Rows without any reward add nothing.
    """
    rewards = rewards.to(torch.float64)
    total = rewards.sum(dim=1, keepdim=True)
    share = torch.where(total > 0, rewards / total, torch.zeros_like(rewards))
    return share.sum(dim=0).clamp(min=1)


def rho_shares(counts: Tensor, norms: Tensor | float = 1.0) -> Tensor:
    """(m_k X_k²)^(1/3) / Σ_j (m_j X_j²)^(1/3), the margins that minimise the bound of Corollary 4.2 at fixed Σρ."""
    root = (counts * norms**2) ** (1 / 3)
    return root / root.sum()


def tie_groups(shares: Tensor, groups: Sequence[Sequence[int]] | None) -> Tensor:
    """Give the experts of each group (numbered from 1) their mean share, so that the sum stays."""
    shares = shares.clone()
    p = len(shares)
    seen: set[int] = set()
    for group in groups or ():
        members = [int(k) for k in group]
        if not members or any(not 1 <= k <= p for k in members) or len({*members} - seen) < len(members):
            raise L2DError(f"method.rho.groups={[list(g) for g in groups or ()]}: lists of distinct experts 1..{p}")
        seen.update(members)
        index = torch.tensor(members) - 1
        shares[index] = shares[index].mean()
    return shares


def rho_by_rule(
    rule: str, total: float, offset: float, counts: Tensor, groups: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """ρ_k = ρ̄·share_k + offset, with equal shares (`uniform`) or those of the bound (`theory`). Returns float64 [p]."""
    check_choice("method.rho.rule", rule, RULES)
    p = len(counts)
    shares = rho_shares(counts) if rule == "theory" else torch.full((p,), 1 / p, dtype=torch.float64)
    rho = total * tie_groups(shares, groups) + offset
    if not rho.isfinite().all():
        raise L2DError(f"method.rho.total={total:g}, method.rho.offset={offset:g}: must be finite")
    k = int(rho.argmin())
    if not rho[k] > 0:
        raise L2DError(
            f"method.rho.offset={offset:g}: rho of expert {k + 1} would be {float(rho[k]):.4g}, not above 0"
            f" (method.rho.total={total:g} gives it {float(rho[k]) - offset:.4g}); raise the offset or the total"
        )
    return rho


def build_rho(rho: float | Sequence[float] | Mapping[str, Any], costs: Tensor, rewards: Tensor) -> Tensor:
    """ρ as float64 [p] from a number, p numbers, or the keys rule, total, offset, counts, groups and values (p numbers, no rule).

    costs and rewards are those of the training split, [N, p].
    """
    if isinstance(rho, Mapping) and {*rho} != {*KEYS}:
        raise L2DError(f"method.rho={dict(rho)}: must have the keys {', '.join(KEYS)}, and no others")
    if isinstance(rho, Mapping) and rho["values"] is not None:
        rho = rho["values"]
    if isinstance(rho, Mapping):
        check_choice("method.rho.counts", rho["counts"], COUNTS)
        counts = cheapest_counts(costs) if rho["counts"] == "cheapest" else reward_mass(rewards)
        return rho_by_rule(rho["rule"], float(rho["total"]), float(rho["offset"]), counts, rho["groups"])
    p = costs.shape[1]
    values = [rho] * p if isinstance(rho, int | float) else list(rho)
    if len(values) != p:
        raise L2DError(f"method.rho={values}: {len(values)} values for {p} experts")
    for k, value in enumerate(values):
        if not 0 < value < float("inf"):
            raise L2DError(f"method.rho={rho}: rho of expert {k + 1} is {value}; it must be positive and finite")
    return torch.tensor(values, dtype=torch.float64)
