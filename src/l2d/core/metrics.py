"""Scores of a routing and of its baselines. Arrays in, plain numbers out; sums in float64."""

from collections import defaultdict
from collections.abc import Sequence
from math import isnan

import torch
from torch import Tensor

from l2d.core.costs import cheapest, paid
from l2d.core.guard import Guard, paired
from l2d.core.results import Baselines, CategoryScore, ExpertAlone, GuardedScore, GuardEvidence, RoutingMetrics, Score
from l2d.core.rho import cheapest_counts


def score(decisions: Tensor, costs: Tensor, prices: Tensor) -> Score:
    """decisions int [N], costs [N, p] of the same rows, prices β [p] or, if they differ between rows, [N, p]."""
    cost, error = paired(paid(costs.double(), decisions))
    price = paid(prices.double().expand_as(costs), decisions).mean()
    ratios = torch.bincount(decisions, minlength=costs.shape[1]).double() / len(decisions)
    return Score(cost, cost - float(price), float(price), ratios.tolist(), error)


def best_single(train_costs: Tensor) -> int:
    """The expert with the least mean cost on the training split, ties to the first."""
    return int(train_costs.double().mean(dim=0).argmin())


def baselines(
    train_costs: Tensor, costs: Tensor, prices: Tensor, *, from_log: bool = False, singles: int | None = None
) -> Baselines:
    """majority: the expert that is cheapest most often on the training split. from_log: costs are doubly robust, so not right on a
    single row: no oracle and no majority. singles: the first columns, of experts; the others are plans, no baselines here."""
    p, columns = costs.shape[1] if singles is None else singles, costs.shape[1]

    def always(k: int) -> Score:
        return score(torch.full((len(costs),), k), costs, prices)

    (cost, error), price = paired(costs[:, :p].double().mean(dim=1)), float(prices[..., :p].double().mean())
    return Baselines(
        oracle=None if from_log else score(cheapest(costs[:, :p]), costs, prices),
        best_single=always(best_single(train_costs[:, :p])),
        random=Score(cost, cost - price, price, [1 / p] * p + [0.0] * (columns - p), error),
        majority=None if from_log or p < columns else always(int(cheapest_counts(train_costs).argmax())),
    )


def confusion(decisions: Tensor, costs: Tensor) -> list[list[int]]:
    """Counts [p][p]: row = the oracle's expert, column = the router's."""
    p = costs.shape[1]
    return torch.bincount(cheapest(costs) * p + decisions, minlength=p * p).reshape(p, p).tolist()


def collapsed_expert(ratios: list[float], oracle_ratios: list[float]) -> int | None:
    """The expert, counted from 1, that gets more than 95 % although the oracle's share differs by 10 points or more; else None."""
    k = ratios.index(max(ratios))
    return k + 1 if ratios[k] > 0.95 and abs(ratios[k] - oracle_ratios[k]) >= 0.10 - 1e-12 else None


def calibration(posterior: Tensor, mass: Tensor) -> list[list[float]]:
    """For each of ten bins of p̂ that is not empty: its weight, the mean p̂ and the observed share of the mass. posterior p̂
    [N, p] estimates E[mass_k|x] / Σ_j E[mass_j|x]. So over a set of (x, k) chosen by x alone, Σ mass_k is expected to be
    Σ p̂_k·C(x) with C = Σ_j mass_j: every pair has the weight C(x)."""
    p_hat, mass = posterior.double(), mass.double()
    total = mass.sum(dim=1, keepdim=True).expand_as(mass)
    place = (p_hat * 10).long().clamp(0, 9).flatten()

    def per_bin(values: Tensor) -> Tensor:
        return torch.zeros(10, dtype=torch.float64).index_add(0, place, values.flatten())

    weight = per_bin(total)
    predicted, observed = per_bin(p_hat * total) / weight, per_bin(mass) / weight
    rows = torch.stack([weight / weight.sum(), predicted, observed], dim=1)
    return [row for row, w in zip(rows.tolist(), weight.tolist(), strict=True) if w > 0]


def calibration_of_chances(expected: Tensor, errors: Tensor) -> list[list[float]]:
    """Calibration of estimates of each expert's error, [N, p] both. Each pair counts twice, as wrong and as right."""
    wrong, happened = expected.double().clamp(0, 1), errors.double().clamp(0, 1)
    return calibration(*(torch.stack([part, 1 - part], dim=-1).flatten(0, 1) for part in (wrong, happened)))


def by_category(
    categories: Sequence[str], decisions: Tensor, train_costs: Tensor, costs: Tensor, *, from_log: bool = False
) -> dict[str, CategoryScore]:
    """The mean costs of each category's rows. The best single expert is chosen on all training rows."""
    rows, found = defaultdict[str, list[int]](list), {}
    for i, category in enumerate(categories):
        rows[category].append(i)
    single = torch.full_like(decisions, best_single(train_costs))
    paid_by = [paid(costs.double(), chosen) for chosen in (decisions, single, cheapest(costs))]
    for name, own in sorted(rows.items()):
        router, alone, oracle = (float(part[own].mean()) for part in paid_by)
        found[name] = CategoryScore(len(own), router, alone, None if from_log else oracle)
    return found


def guarded_score(guard: Guard, decisions: Tensor, costs: Tensor, prices: Tensor, names: Sequence[str]) -> GuardedScore:
    return GuardedScore(
        **vars(score(decisions, costs, prices)),
        constant=None if guard.constant is None else names[guard.constant],
        offsets=None if guard.offsets is None else list(guard.offsets),
        validation=GuardEvidence(best_constant=names[guard.best], gain=guard.gain, standard_error=guard.error),
        test=gain_over(guard.best, decisions, costs, names),
    )


def gain_over(k: int, decisions: Tensor, costs: Tensor, names: Sequence[str]) -> GuardEvidence:
    return GuardEvidence(names[k], *paired(costs[:, k].double() - paid(costs.double(), decisions)))


def routing_metrics(
    decisions: Tensor,
    train_costs: Tensor,
    costs: Tensor,
    prices: Tensor,
    names: Sequence[str],
    *,
    from_log: bool = False,
    singles: int | None = None,
) -> RoutingMetrics:
    """Everything that follows from the routing of one split. singles: see baselines."""
    router = score(decisions, costs, prices)
    compared = baselines(train_costs, costs, prices, from_log=from_log, singles=singles)
    mean_prices = torch.atleast_2d(prices.double()).mean(dim=0).tolist()
    alone = zip(names, map(paired, costs.double().T), mean_prices, strict=True)
    return RoutingMetrics(
        **vars(router),
        baselines=compared,
        confusion=None if from_log else confusion(decisions, costs),
        collapsed_expert=None if compared.oracle is None else collapsed_expert(router.ratios, compared.oracle.ratios),
        prices=mean_prices,
        experts=[ExpertAlone(name, cost - price, price, error) for name, (cost, error), price in alone],
    )


def accuracy_by_expert(errors: Tensor, labels: Tensor, knows: Tensor | None) -> list[tuple[float | None, ...]]:
    """For each expert, the shares of right answers on its own classes, on the others', and overall, None if there is no such row.
    errors [n, p], NaN where an expert was not asked. knows: bool [p, num_classes], the classes that each expert knows."""
    right = 1 - errors.double()
    everything = torch.ones_like(right, dtype=torch.bool)
    own, others = (~everything, ~everything) if knows is None else (knows[:, labels].T, ~knows[:, labels].T)
    shares = [right.where(rows, torch.nan).nanmean(dim=0).tolist() for rows in (own, others, everything)]
    return [tuple(None if isnan(one) else one for one in three) for three in zip(*shares, strict=True)]
