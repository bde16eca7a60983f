"""Advice on a run's settings, printed before it trains: one line each."""

from collections.abc import Sequence

from l2d.config import Experiment
from l2d.core.decisions import argmax_last
from l2d.methods.method import Method
from l2d.methods.priced import Priced

# Rows per label; with fewer, the mean error of an expert is too uncertain.
FEW = 5


def advice(experiment: Experiment, method: Method, experts: Sequence[str]) -> list[str]:
    """Say if one expert is the cheapest for every label, or if half of its values have too few rows, by the method's evidence."""
    costs = method.costs_by_label() if isinstance(method, Priced) else None
    rows = method.rows_by_label if isinstance(method, Priced) else None
    if costs is None or rows is None:
        return []
    found, dataset = [], experiment.dataset.arguments
    label, other = "the label", "try method=cost_regression, which uses only the input"
    if "label" in dataset:
        label, other = f"dataset.label={dataset['label']}", "choose another label"
    chosen = argmax_last(-costs[rows > 0]).unique()
    if len(chosen) == 1:
        best = f"at these prices {experts[int(chosen)]} has the least error + price for every {dataset.get('label', 'label')}"
        gain = f"no routing by {label} can gain; check the prices, or {other}"
        found.append(f"method={experiment.method.name}: {best}, so {gain}")
    if rows.double().quantile(0.5) < FEW:
        remedy = "choose a label with fewer values" if "label" in dataset else "raise validation_fraction"
        found.append(f"{label}: at least half of its {len(rows):,} values have fewer than {FEW} rows; {remedy}")
    return found
