"""The bound for a trained router, in words and numbers: what is proven, what is estimated, whether it says anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from l2d.analysis.theory import bounds
from l2d.analysis.theory.bounds import OURS, PAPER, Bound
from l2d.analysis.theory.consistency import worst_regret
from l2d.analysis.theory.trained import Trained
from l2d.core.decisions import argmax_last
from l2d.core.deferral import deferral_loss
from l2d.core.rewards import REWARDS, complement, complement_scale, sum_others
from l2d.core.rho import build_rho, rho_shares
from l2d.methods.comp_sum import CompSum
from l2d.runs.summary import aligned
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.seeding import derive_seed


@dataclass(frozen=True)
class Sample:
    """The weighted sample of bounds.py, and what leads back to the deferral loss: DL = scale·unit·loss + constant."""

    weights: Tensor
    scale: float
    unit: float
    constant: float


def sample_of(costs: Tensor, kind: str, cost_scale: float = 1.0) -> Sample:
    """Weights c̄_k/C with C the largest Σ_k c̄_k of these rows. kind: of the rewards; cost_scale: what the costs of complement are
    divided by. By Lemma 1, DL = Σ_{k≠k*} c̄_k − (p − 2)·Σ_k c_k; by Lemma 2, DL/cost_scale =
    Σ_{k≠k*} c̄_k + Σ_k c_k/cost_scale − (p − 1).
    """
    check_choice("rewards", kind, REWARDS)
    p = costs.shape[1]
    total = float(costs.sum(dim=1).mean())
    if kind == "sum_others":
        rewards, unit, constant = sum_others(costs), 1.0, -(p - 2) * total
    else:
        rewards, unit, constant = complement(costs, cost_scale), cost_scale, total - (p - 1) * cost_scale
    scale = float(rewards.sum(dim=1).max())
    if not scale > 0:
        raise L2DError("costs: no expert earns a reward on any training row, so there is nothing to bound")
    return Sample(rewards / scale, scale, unit, constant)


@dataclass(frozen=True)
class Report:
    """Everything `describe` prints."""

    sample: Sample
    rho: Tensor
    rewards: str
    counts: Tensor
    norms: Tensor
    norm_bound: float
    rademacher: dict[str, float]
    rademacher_error: float
    rows: dict[str, dict[str, Bound]]
    error: float
    worst: float
    training_loss: float
    best_complexity: float
    delta: float
    ceiling: float


def evaluate(trained: Trained, options: Mapping[str, Any]) -> Report:
    """options: rho, rewards (null: the method's), delta, ceiling, draws, seed."""
    method, costs = trained.method, trained.costs
    kind, cost_scale = _rewards(method, costs, options["rewards"])
    sample = sample_of(costs, kind, cost_scale)
    rho = _rho(method, costs, options["rho"])
    delta, ceiling = float(options["delta"]), float(options["ceiling"])
    if not 0 < delta < 1:
        raise L2DError(f"delta={delta}: must be between 0 and 1")
    if float(rho.max()) > ceiling:
        raise L2DError(f"ceiling={ceiling:g}: must be at least the largest rho, {float(rho.max()):.4g}")
    m, features, weights = len(costs), trained.features, sample.weights
    counts, norms = weights.sum(dim=0), bounds.largest_norms(features, weights)
    norm_bound = float(trained.head.norm())
    estimate, error = bounds.rademacher_monte_carlo(
        features, weights, rho, norm_bound, draws=options["draws"], seed=derive_seed(options["seed"], "signs")
    )
    rademacher = {
        "Theorem 4.1": estimate,
        "Corollary 4.2, X_j": bounds.rademacher_bound(counts, norms, rho, norm_bound, m),
        "Corollary 4.2, X": bounds.rademacher_bound_one_norm(counts, norms, rho, norm_bound, m),
    }
    empirical = float(bounds.margin_loss(trained.scores, weights, rho).mean())
    rows = {
        form: {
            title: bounds.margin_bound(empirical, value, rho, m, delta=delta, constants=constants, ceiling=top)
            for title, constants, top in (
                ("ρ fixed", PAPER, None),
                ("uniform in ρ", PAPER, ceiling),
                ("uniform in ρ, constant 4", OURS, ceiling),
            )
        }
        for form, value in rademacher.items()
    }
    best = rho.sum() * rho_shares(counts, norms) if float(counts.min()) > 0 else rho
    return Report(
        sample=sample,
        rho=rho,
        rewards=kind,
        counts=counts,
        norms=norms,
        norm_bound=norm_bound,
        rademacher=rademacher,
        rademacher_error=error,
        rows=rows,
        error=float(bounds.zero_one_loss(trained.scores, weights).mean()),
        worst=float((weights.sum(dim=1) - weights.amin(dim=1)).mean()),
        training_loss=float(deferral_loss(trained.scores, costs).mean()),
        best_complexity=bounds.rademacher_bound(counts, norms, best, norm_bound, m),
        delta=delta,
        ceiling=ceiling,
    )


def _rewards(method: Any, costs: Tensor, given: str | None) -> tuple[str, float]:
    if given is not None:
        return given, complement_scale(costs)
    if isinstance(method, CompSum):
        return method.reward_kind, float(method.reward_scale)
    raise L2DError(f"rewards: {type(method).__name__} has none; give rewards={' or rewards='.join(REWARDS)}")


def _rho(method: Any, costs: Tensor, given: Any) -> Tensor:
    if given is not None:
        try:
            return build_rho(given, costs, costs)
        except (TypeError, L2DError) as error:
            raise L2DError(str(error).replace("method.rho=", "rho=")) from None
    if isinstance(method, CompSum):
        return method.rho.double()
    raise L2DError(f"rho: {type(method).__name__} has no margins; give rho=1, or one number per expert")


def describe(report: Report, trained: Trained) -> str:
    """The report as text."""
    m, p = trained.costs.shape
    sample = report.sample
    lines = [
        f"S: the training split, m = {m} points, {p} experts; rewards {report.rewards}, divided by"
        f" C = {sample.scale:.4g}, the largest Σ_k c̄_k in S",
        f"F = {report.norm_bound:.4g}, the Frobenius norm of the head (its bias with it)",
        "",
        aligned(
            ["expert", *(str(k + 1) for k in range(p))],
            [
                ["ρ_j", *_numbers(report.rho)],
                ["m_j = Σ_i c̄_j/C", *_numbers(report.counts)],
                ["X_j", *_numbers(report.norms)],
            ],
        ),
        "",
    ]
    header = ["", "empirical margin loss", "complexity", "confidence", "uniform in ρ", "bound"]
    body = [
        [f"{form}: {title}", *_numbers([b.empirical, b.complexity, b.confidence, b.uniform, b.total])]
        for form, row in report.rows.items()
        for title, b in row.items()
    ]
    lines += [aligned(header, body), ""]
    lines += _verdict(report, m)
    lines += ["", *_caveats(report, trained)]
    return "\n".join(lines)


def _verdict(report: Report, m: int) -> list[str]:
    sample = report.sample
    least = min((b for row in report.rows.values() for b in row.values()), key=lambda b: b.total)
    lines = [
        f"bounded: E[Σ_k c̄_k·1[ρ_f(x, k) ≤ 0]]/C, which is at most 1; on S it is {report.error:.4f},"
        f" and {report.worst:.4f} for the worst routing of S",
    ]
    if least.vacuous:
        lines.append(
            "VACUOUS: every bound above is at least 1, the scale of the loss, so it says nothing about this router."
        )
        if least.empirical < report.worst:
            lines.append(
                f"The least, {least.total:.4g}, would reach 1 with about {least.points_needed(m):.2g} such points (there are {m})."
            )
        else:
            lines.append(
                f"More points would not help: the empirical margin loss alone, {least.empirical:.4f}, is above the worst routing's"
                f" {report.worst:.4f}; margins as large as ρ are not reached."
            )
    elif least.total >= report.worst:
        lines.append(
            f"NEXT TO VACUOUS: the least bound, {least.total:.4g}, is no less than the worst routing of S has."
        )
    else:
        in_costs = sample.scale * sample.unit * least.total + sample.constant
        lines.append(
            f"not vacuous: the least bound is {least.total:.4g}; as a deferral loss {in_costs:.4f} (the lemmas' constant"
            f" estimated on S), against {report.training_loss:.4f} on S"
        )
    ratio = report.rademacher["Corollary 4.2, X_j"] / report.best_complexity
    lines.append(f"the ρ that makes Corollary 4.2's complexity least at the same Σρ would divide it by {ratio:.4f}")
    return lines


def _caveats(report: Report, trained: Trained) -> list[str]:
    lines = [
        f"proven, with probability {1 - report.delta:g}, for a linear router whose features and norm F were fixed before S was"
        f" seen: the rows above. A ρ that was chosen on S (rule: theory counts m_k there) needs the rows uniform in ρ, which hold"
        f" for all ρ ≤ {report.ceiling:g} at once.",
        "estimated: R̂ of Theorem 4.1 by random signs"
        f" (R̂ = {report.rademacher['Theorem 4.1']:.4g} ± {report.rademacher_error:.1g}); C from S.",
        "not covered: features and F that were learned from S itself; for a trained network these numbers are diagnostics, not"
        " guarantees.",
    ]
    if float(report.rho.max() - report.rho.min()) > 0:
        lines.append(
            f"ρ is unequal: argmax may lose up to {worst_regret(report.rho):.4f}·C(x) at surrogate regret 0"
            " (l2d theory consistency)"
        )
    if trained.method.decision == "posterior":
        agree = float((trained.method.decide(trained.scores.float()) == argmax_last(trained.scores)).double().mean())
        lines.append(f"the run decides by posterior, the bound is about argmax f: they agree on {agree:.2%} of S")
    return lines


def _numbers(values: Any) -> list[str]:
    return [f"{float(value):.4g}" for value in torch.as_tensor(values).tolist()]
