"""What a run has to say of its settings before it trains: one line each."""

from collections.abc import Sequence

from omegaconf import DictConfig

from l2d.core.decisions import argmax_last
from l2d.methods.method import Method
from l2d.methods.priced import Plugin, Priced

# Rows of a label; with fewer, the mean error of an expert is hardly known.
FEW = 5


def remarks(cfg: DictConfig, method: Method, experts: Sequence[str]) -> list[str]:
    """method: as it is when it has learned its evidence. experts: their names."""
    found = []
    if cfg.aux == "none" and cfg.aux_weight != 1:
        found.append(f"aux_weight={cfg.aux_weight:g}: without effect; aux=none learns nothing beside the task")
    if isinstance(method, Priced):
        found += label_lines(cfg, method, experts)
    return found


def label_lines(cfg: DictConfig, method: Priced, experts: Sequence[str]) -> list[str]:
    """Where the label does not tell experts apart, or has too few rows to."""
    costs, rows = method.costs_by_label(), method.rows_by_label
    if costs is None or rows is None:
        return []
    found = []
    label = f"dataset.label={cfg.dataset.label}" if "label" in cfg.dataset else "the label"
    chosen = argmax_last(-costs[rows > 0]).unique()
    if len(chosen) == 1:
        so = (
            "everything goes there" if isinstance(method, Plugin) else "only the correction can send an input elsewhere"
        )
        found.append(
            f"method={cfg.method.name}: whatever {label} says, {experts[int(chosen)]} has the least expected cost, so {so};"
            f" {other_label(cfg)}"
        )
    if rows.double().quantile(0.5) < FEW:
        found.append(
            f"{label}: {len(rows):,} labels, half of them or more with fewer than {FEW} rows to learn from, which say little of an"
            f" expert; {'one with fewer values is wanted' if 'label' in cfg.dataset else 'raise validation_fraction'}"
        )
    return found


def other_label(cfg: DictConfig) -> str:
    if "label" not in cfg.dataset:
        return "method=cost_regression goes by the input alone"
    category = cfg.dataset.get("category", "subject")  # dataset=mmlu_sim has that one, and no key for it
    such = "" if category in (None, cfg.dataset.label) else f", such as dataset.label={category}"
    return f"a label that tells experts apart is wanted{such}"
