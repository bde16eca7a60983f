"""The paper's own numbers (paper.csv) and its other claims (claims.csv)."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

BLOCK = ("dataset", "setup", "experts", "cost")  # methods are compared within a block


@dataclass(frozen=True)
class PaperNumber:
    """A printed deferral loss. table: 1 to 4, rho, noise20 or extreme. names: dataset, setup, experts, cost, method."""

    table: str
    names: tuple[str, ...]
    mean: float
    std: float


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, our verdict, and where the reason is."""

    where: str
    says: str
    verdict: str
    why: str


def _rows(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / name).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def paper_numbers() -> list[PaperNumber]:
    """Every printed mean, in the paper's order."""
    return [
        PaperNumber(row["table"], tuple(row[key] for key in (*BLOCK, "method")), float(row["mean"]), float(row["std"]))
        for row in _rows("paper.csv")
        if row["mean"]
    ]


def paper_blocks() -> set[tuple[str, ...]]:
    """The (dataset, setup, experts, cost) with numbers in the paper. Those with trained experts are also run with synthetic ones:
    Table 4 cannot have been made with trained ones, so it is tried both ways."""
    printed = {number.names[:4] for number in paper_numbers()}
    return printed | {(*names[:2], "synthetic", names[3]) for names in printed if names[2] == "trained"}


def paper_claims() -> list[Claim]:
    return [Claim(**row) for row in _rows("claims.csv")]


@cache
def paper_results() -> dict[tuple[str, ...], dict[str, Any]]:
    """The paper's numbers by (dataset, setup, experts, cost, method). The first table to give a cell counts."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in _rows("paper.csv"):
        if row["mean"] and row["table"].isdigit():
            ratios = [float(ratio) / 100 for ratio in row["ratios"].split()]
            known = {"mean": float(row["mean"]), "std": float(row["std"]), "ratios": ratios}
            found.setdefault(tuple(row[key] for key in (*BLOCK, "method")), known)
    return found


def paper_rho(block: Sequence[str], method: str) -> dict[str, float] | None:
    """The paper's ablation of ρ: mean and std for (dataset, setup, experts, cost) and mild_uniform, mild_theory or mild_tuned."""
    for row in _rows("paper.csv"):
        if row["table"] == "rho" and [row[key] for key in (*BLOCK, "method")] == [*block, method]:
            return {"mean": float(row["mean"]), "std": float(row["std"])}
    return None
