"""What a run has to say of its settings before it trains: one line each."""

from collections.abc import Sequence

from l2d.config import Experiment
from l2d.core.decisions import argmax_last
from l2d.methods.method import Method
from l2d.methods.priced import Priced

# Rows of a label; with fewer, the mean error of an expert is hardly known.
FEW = 5


def advice(experiment: Experiment, method: Method, experts: Sequence[str]) -> list[str]:
    """method: as it is when it has learned its evidence. experts: their names."""
    found = []
    settings = experiment.settings
    if settings.aux == "none" and settings.aux_weight != 1:
        found.append(f"aux_weight={settings.aux_weight:g}: has no effect with aux=none")
    if isinstance(method, Priced):
        found += label_lines(experiment, method, experts)
    return found


def label_lines(experiment: Experiment, method: Priced, experts: Sequence[str]) -> list[str]:
    """Where the label does not separate the experts, or has too few rows to."""
    costs, rows = method.costs_by_label(), method.rows_by_label
    if costs is None or rows is None:
        return []
    found = []
    dataset = experiment.dataset.arguments
    label = f"dataset.label={dataset['label']}" if "label" in dataset else "the label"
    chosen = argmax_last(-costs[rows > 0]).unique()
    if len(chosen) == 1:
        found.append(
            f"method={experiment.method.name}: {label} does not separate the experts: {experts[int(chosen)]} is cheapest for"
            f" every label; {other_label(experiment)}"
        )
    if rows.double().quantile(0.5) < FEW:
        remedy = "choose a label with fewer values" if "label" in dataset else "raise validation_fraction"
        found.append(f"{label}: half of its {len(rows):,} values or more have fewer than {FEW} rows; {remedy}")
    return found


def other_label(experiment: Experiment) -> str:
    dataset = experiment.dataset.arguments
    if "label" not in dataset:
        return "method=cost_regression goes by the input alone"
    category = dataset.get("category", "subject")  # dataset=mmlu_sim has that one, and no key for it
    such = "" if category in (None, dataset["label"]) else f", such as dataset.label={category}"
    return f"choose a label that does{such}"
