"""The margin bound for a trained router: its terms, its verdict, and its caveats."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product

import bounds
import torch
from bounds import OURS, PAPER, MarginBound
from consistency import worst_regret
from linear_router import LinearRouter
from torch import Tensor

from l2d.core.decisions import argmax_last, deferral_loss
from l2d.core.rewards import complement, complement_scale, sum_others
from l2d.core.rho import rho_shares
from l2d.methods.comp_sum import CompSum
from l2d.methods.cost_sensitive import CostSensitive
from l2d.methods.method import Method
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.seeding import derive_seed
from l2d.utils.text import Z, aligned

MONTE_CARLO, BY_EXPERT, ONE_NORM = "Theorem 4.1", "Corollary 4.2, X_j", "Corollary 4.2, X"


@dataclass(frozen=True)
class WeightedSample:
    """The weights of bounds.py, and the constants that turn a weighted loss into a deferral loss."""

    weights: Tensor
    scale: float
    unit: float
    constant: float

    def as_deferral_loss(self, loss: float) -> float:
        return self.scale * self.unit * loss + self.constant


def weighted_sample(costs: Tensor, kind: str, cost_scale: float = 1.0) -> WeightedSample:
    """Weights c̄_k/C with C the largest Σ_k c̄_k of these rows.

    kind: sum_others or complement. cost_scale: divides the costs for complement.
    By Lemma 1, DL = Σ_{k≠k*} c̄_k − (p − 2)·Σ_k c_k;
    by Lemma 2, DL/cost_scale = Σ_{k≠k*} c̄_k + Σ_k c_k/cost_scale − (p − 1).
    """
    p = costs.shape[1]
    total = float(costs.sum(dim=1).mean())
    if kind == "sum_others":
        rewards, unit, constant = sum_others(costs), 1.0, -(p - 2) * total
    else:
        rewards, unit, constant = complement(costs, cost_scale), cost_scale, total - (p - 1) * cost_scale
    scale = float(rewards.sum(dim=1).max())
    if not scale > 0:
        raise L2DError("there is nothing to bound: no expert earns a reward on any training row")
    return WeightedSample(rewards / scale, scale, unit, constant)


@dataclass(frozen=True)
class BoundReport:
    """The numbers that `bound_text` prints. rows: by form of the complexity and assumption on ρ."""

    sample: WeightedSample
    rho: Tensor
    rewards: str
    counts: Tensor
    norms: Tensor
    norm_bound: float
    rademacher: dict[str, float]
    rademacher_error: float
    rows: dict[str, MarginBound]
    error: float
    worst: float
    training_loss: float
    best_complexity: float
    delta: float
    ceiling: float

    @property
    def least(self) -> MarginBound:
        return min(self.rows.values(), key=lambda bound: bound.total)


def bound_report(
    router: LinearRouter,
    *,
    rho: Sequence[float] | None,
    rewards: str | None,
    delta: float,
    ceiling: float,
    draws: int,
    seed: int,
) -> BoundReport:
    """rho: one number, or one per expert. rho and rewards: None for the method's own. ceiling: largest ρ of the uniform bound."""
    costs, features, p = router.costs, router.features, router.costs.shape[1]
    kind = rewards or with_margins(router.method, "rewards").reward_kind
    cost_scale = complement_scale(costs) if rewards else float(with_margins(router.method, "rewards").reward_scale)
    sample = weighted_sample(costs, kind, cost_scale)
    if rho is not None and len(rho) not in (1, p):
        raise ParameterError("rho", f"{len(rho)} values for {p} experts; give one value, or one per expert", rho)
    own = with_margins(router.method, "rho").rho.double() if rho is None else rho
    margins = torch.as_tensor(own, dtype=torch.float64).expand(p)
    if float(margins.max()) > ceiling:
        raise ParameterError("ceiling", f"must be at least the largest rho, {float(margins.max()):.4g}", ceiling)
    m, weights, norm_bound = len(costs), sample.weights, float(router.head.norm())
    counts, norms = weights.sum(dim=0), bounds.largest_norms(features, weights)
    signs = derive_seed(seed, "signs")
    estimate, error = bounds.rademacher_monte_carlo(features, weights, margins, norm_bound, draws=draws, seed=signs)
    rademacher = {
        MONTE_CARLO: estimate,
        BY_EXPERT: bounds.rademacher_bound(counts, norms, margins, norm_bound, m),
        ONE_NORM: bounds.rademacher_bound_one_norm(counts, norms, margins, norm_bound, m),
    }
    empirical = float(bounds.weighted_margin_loss(router.scores, weights, margins).mean())
    best = margins.sum() * rho_shares(counts, norms) if float(counts.min()) > 0 else margins
    assumed = {"ρ fixed": (PAPER, None), "uniform in ρ": (PAPER, ceiling), "uniform in ρ, constant 4": (OURS, ceiling)}
    first = bounds.first_margin_bound(empirical, estimate, costs.shape[1], m, delta=delta, constants=PAPER)
    rows = {f"{MONTE_CARLO}, first inequality: ρ fixed": first}
    for (form, value), (title, (constants, top)) in product(rademacher.items(), assumed.items()):
        bound = bounds.margin_bound(empirical, value, margins, m, delta=delta, constants=constants, ceiling=top)
        rows[f"{form}: {title}"] = bound
    return BoundReport(
        *(sample, margins, kind, counts, norms, norm_bound, rademacher, error, rows),
        error=float(bounds.weighted_zero_one_loss(router.scores, weights).mean()),
        worst=float((weights.sum(dim=1) - weights.amin(dim=1)).mean()),
        training_loss=float(deferral_loss(router.scores, costs).mean()),
        best_complexity=bounds.rademacher_bound(counts, norms, best, norm_bound, m),
        delta=delta,
        ceiling=ceiling,
    )


def with_margins(method: Method, key: str) -> CompSum | CostSensitive:
    """The method, if it has rewards and margins of its own."""
    if not isinstance(method, CompSum | CostSensitive):
        raise ParameterError(key, f"{type(method).__name__} has none of its own; give --rewards sum_others --rho 1")
    return method


def bound_text(report: BoundReport, router: LinearRouter) -> str:
    m, p = router.costs.shape
    by_expert = {"ρ_j": report.rho, "m_j = Σ_i c̄_j/C": report.counts, "X_j": report.norms}
    experts = [[name, *(f"{x:.4g}" for x in values.tolist())] for name, values in by_expert.items()]
    header = ["", "empirical margin loss", "complexity", "confidence", "uniform in ρ", "bound"]
    terms = [[name, *(f"{x:.4g}" for x in (*astuple(bound), bound.total))] for name, bound in report.rows.items()]
    ratio = report.rademacher[BY_EXPERT] / report.best_complexity
    lines = [
        f"S: the training split, m = {m} points, {p} experts. Rewards: {report.rewards}, divided by"
        f" C = {report.sample.scale:.4g}, the largest Σ_k c̄_k in S.",
        f"F = {report.norm_bound:.4g}, the Frobenius norm of the head, bias included.",
        *("", aligned(["expert", *(str(k + 1) for k in range(p))], experts), "", aligned(header, terms), ""),
        "The bound is on E[Σ_k c̄_k·1[ρ_f(x, k) ≤ 0]]/C, which is at most 1."
        f" On S it is {report.error:.4f} for this router and {report.worst:.4f} for the worst routing.",
        _verdict(report, m),
        f"The best ρ with the same Σρ would divide the complexity of Corollary 4.2 by {ratio:.4f}.",
        "",
        *_caveats(report, router),
    ]
    return "\n".join(lines)


def _verdict(report: BoundReport, m: int) -> str:
    least, worst = report.least, report.worst
    if least.total < worst:
        in_costs = report.sample.as_deferral_loss(least.total)
        return (
            f"Not vacuous: the smallest bound is {least.total:.4g}. As a deferral loss that is {in_costs:.4f} (the lemmas' constant"
            f" is estimated on S). On S itself the deferral loss is {report.training_loss:.4f}."
        )
    vacuous = f"VACUOUS: the smallest bound, {least.total:.4g}, is no better than the worst routing of S."
    if least.empirical >= worst:
        return (
            f"{vacuous} More points would not help: the empirical margin loss alone is {least.empirical:.4f}."
            " The router does not reach margins as large as ρ."
        )
    return f"{vacuous} It would be with about {least.points_needed(m, worst):.2g} such points (there are {m})."


def _caveats(report: BoundReport, router: LinearRouter) -> list[str]:
    estimate = f"{report.rademacher[MONTE_CARLO]:.4g} ± {Z * report.rademacher_error:.1g}, 95 %"
    lines = [
        f"Proven, with probability {1 - report.delta:g}: the rows above, for a linear router whose features and norm F were fixed"
        " before S was seen. If ρ was chosen on S (rule: theory counts m_k there), only the rows uniform in ρ hold, for all"
        f" ρ ≤ {report.ceiling:g} at once.",
        f"Estimated: R̂ of Theorem 4.1 by random signs (R̂ = {estimate}), and C from S. In the first inequality R̂ stands for R_m, its"
        " mean over samples.",
        "Not covered: features and F that were learned from S. For a trained network the numbers are diagnostics, not guarantees.",
    ]
    if router.from_log:
        lines.append("From a log: costs of experts that were not asked are estimates; nothing is proven about these.")
    if float(report.rho.max() - report.rho.min()) > 0:
        lines.append(
            f"ρ is unequal: argmax may lose up to {worst_regret(report.rho):.4f}·C(x) at surrogate regret 0"
            " (see python examples/theory.py consistency)."
        )
    if router.method.decision == "posterior":
        agree = float((router.method.decide(router.scores.float()) == argmax_last(router.scores)).double().mean())
        lines.append(f"The run decides by the posterior; the bound is about argmax f. They agree on {agree:.2%} of S.")
    return lines
