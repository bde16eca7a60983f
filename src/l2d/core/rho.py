"""ρ, the confidence margin of each expert, from how often each expert is the one to choose (Section 4.2, B)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from l2d.core.costs import cheapest
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Rho


def cheapest_counts(costs: Tensor) -> Tensor:
    """m_k = number of training points whose cheapest expert is k, at least 1. costs [N, p] -> float64 [p]."""
    return torch.bincount(cheapest(costs), minlength=costs.shape[1]).to(torch.float64).clamp(min=1)


def reward_mass(rewards: Tensor) -> Tensor:
    """m_k = Σ_i c̄_k/Σ_j c̄_j, at least 1: the size of S_k under the P of Eq. (new). rewards [N, p] -> float64 [p]."""
    rewards = rewards.to(torch.float64)
    total = rewards.sum(dim=1, keepdim=True)
    share = torch.where(total > 0, rewards / total, torch.zeros_like(rewards))
    return share.sum(dim=0).clamp(min=1)


def rho_shares(counts: Tensor, norms: Tensor | float = 1.0) -> Tensor:
    """(m_k X_k²)^(1/3) / Σ_j (m_j X_j²)^(1/3), the margins that minimise the bound of Corollary 4.2 at fixed Σρ."""
    root = (counts * norms**2) ** (1 / 3)
    return root / root.sum()


def tie_groups(shares: Tensor, groups: Sequence[Sequence[int]] | None) -> Tensor:
    """Give the experts of each group (numbered from 1) their mean share; the sum does not change."""
    members = [expert for group in groups or () for expert in group]
    p, distinct = len(shares), len(members) == len({*members})
    if groups is not None and not (all(groups) and distinct and all(1 <= expert <= p for expert in members)):
        raise ParameterError("rho.groups", f"must be lists of distinct experts from 1 to {p}", list(map(list, groups)))
    shares = shares.clone()
    for group in groups or ():
        index = torch.tensor(group) - 1
        shares[index] = shares[index].mean()
    return shares


def rho_by_rule(
    rule: str, total: float, offset: float, counts: Tensor, groups: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """ρ_k = ρ̄·share_k + offset, with equal shares (`uniform`) or those of the bound (`theory`). Returns float64 [p]."""
    p = len(counts)
    shares = rho_shares(counts) if rule == "theory" else torch.full((p,), 1 / p, dtype=torch.float64)
    rho = total * tie_groups(shares, groups) + offset
    k = int(rho.argmin())
    if not rho[k] > 0:
        without = f"rho.total={total:g} gives it {float(rho[k]) - offset:.4g}"
        problem = f"rho of expert {k + 1} would be {float(rho[k]):.4g} and must be positive ({without})"
        raise ParameterError("rho.offset", f"{problem}; raise the offset or the total", offset)
    return rho


def build_rho(rho: Rho, costs: Tensor, rewards: Tensor) -> Tensor:
    """ρ as float64 [p] from a number, p numbers, or a rule. costs and rewards are those of the training split, [N, p]."""
    parameter = "rho"
    if isinstance(rho, Mapping) and rho["values"] is not None:
        parameter, rho = "rho.values", rho["values"]
    if isinstance(rho, Mapping):
        counts = cheapest_counts(costs) if rho["counts"] == "cheapest" else reward_mass(rewards)
        return rho_by_rule(rho["rule"], float(rho["total"]), float(rho["offset"]), counts, rho["groups"])
    p = costs.shape[1]
    values = [rho] * p if isinstance(rho, int | float) else list(rho)
    if len(values) != p:
        raise ParameterError(parameter, f"expected {p} values, one per expert; got {len(values)}", values)
    return torch.tensor(values, dtype=torch.float64)
