"""The paper's own numbers (paper.csv)."""

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

BLOCK = ("dataset", "setup", "experts", "cost")  # what methods are compared within


def _paper_rows() -> list[dict[str, str]]:
    with (Path(__file__).parent / "paper.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@cache
def paper_results() -> dict[tuple[str, ...], dict[str, Any]]:
    """The paper's numbers by (dataset, setup, experts, cost, method). The first table to give a cell counts."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in _paper_rows():
        if row["mean"] and row["table"].isdigit():
            ratios = [float(ratio) / 100 for ratio in row["ratios"].split()]
            known = {"mean": float(row["mean"]), "std": float(row["std"]), "ratios": ratios}
            found.setdefault(tuple(row[key] for key in (*BLOCK, "method")), known)
    return found


def paper_rho(block: Sequence[str], method: str) -> dict[str, float] | None:
    """The paper's ablation of ρ: mean and std for (dataset, setup, experts, cost) and mild_uniform, mild_theory or mild_tuned."""
    for row in _paper_rows():
        if row["table"] == "rho" and [row[key] for key in (*BLOCK, "method")] == [*block, method]:
            return {"mean": float(row["mean"]), "std": float(row["std"])}
    return None
