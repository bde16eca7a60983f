"""A finished run's metrics, without the run."""

from dataclasses import replace
from typing import Any

from l2d.core.results import (
    SCHEMA_VERSION,
    Baselines,
    Capabilities,
    ExpertAlone,
    GuardedScore,
    GuardEvidence,
    RowCounts,
    RunMetrics,
    Score,
)


def example_score(loss: float, ratios: list[float], price: float = 0.0) -> Score:
    return Score(deferral_loss=loss, error_rate=loss - price, mean_price=price, ratios=ratios, standard_error=0.0625)


def example_metrics(loss: float = 0.25, p: int = 2, **changes: Any) -> RunMetrics:
    """A router over p experts that the guard leaves as it is."""
    shares, first = [1 / p] * p, [1.0, *[0.0] * (p - 1)]
    found = RunMetrics(
        **vars(example_score(loss, shares)),
        baselines=Baselines(
            oracle=example_score(0.125, shares),
            best_single=example_score(0.5, first),
            random=example_score(0.625, shares),
            majority=example_score(0.5, first),
        ),
        confusion=[[2 if i == j else 0 for j in range(p)] for i in range(p)],
        collapsed_expert=None,
        prices=[0.0] * p,
        experts=[ExpertAlone(f"expert {k + 1}", 0.5, 0.0, 0.0625) for k in range(p)],
        schema_version=SCHEMA_VERSION,
        capabilities=Capabilities(
            takes_prices_later=False, has_posterior=True, estimates_costs=False, needs_labels=False, reads_text=False
        ),
        evaluation="holdout",
        validation=example_score(0.375, shares),
        guarded=GuardedScore(
            **vars(example_score(loss, shares)),
            constant=None,
            offsets=None,
            validation=GuardEvidence(best_constant="expert 1", gain=0.125, standard_error=0.0625),
            test=GuardEvidence(best_constant="expert 1", gain=0.25, standard_error=0.0625),
        ),
        decision="argmax",
        method_buffers={"rho": [1.0] * p, "reward_scale": 1.0},
        rows=RowCounts(train=40, validation=10, test=2 * p),
        checkpoint="last",
        epochs=3,
        kept_epoch=3,
    )
    return replace(found, **changes)
