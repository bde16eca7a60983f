"""The trials of a search as a table; the controls of a tuned MILD (tune.ablation=true); the winner's table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from l2d.analysis.report.averages import mean_std, paired_interval
from l2d.analysis.report.tables import interval_text, with_std
from l2d.runs.cells import Cell
from l2d.tuning.grid import Settings, overrides_of, rounded
from l2d.utils.text import markdown

ONE, COMPLEMENT = "tuned, one ρ for all", "complement rewards"
CONTROLS = ("uniform", "theory", ONE, f"tuned, {COMPLEMENT}", f"{ONE}, {COMPLEMENT}", "tdef")


@dataclass(frozen=True)
class Trial:
    """One setting and its result. value: the mean validation deferral loss of its runs; infinite if one failed, for this reason."""

    settings: Settings
    value: float
    runs: int
    rho: list[float] = field(default_factory=list)
    reason: str = ""

    @property
    def name(self) -> str:
        return " ".join(overrides_of(self.settings)) or "as it is"


def ordered(trials: Sequence[Trial], last_wins: bool) -> list[Trial]:
    """Best first, failed trials last. last_wins: ties go to the last trial, else to the first."""
    return sorted(reversed(trials) if last_wins else trials, key=lambda trial: (bool(trial.reason), trial.value))


def trial_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per trial."""
    rows = []
    for trial in trials:
        value, rho = f"{trial.value:.4f}" if math.isfinite(trial.value) else "-", (f"{one:.4g}" for one in trial.rho)
        rows.append([trial.name, value, " ".join(rho), str(trial.runs), trial.reason or "finished"])
    return ["trial", "validation deferral loss", "ρ", "runs", "state"], rows


def controls(config: Mapping[str, Any], winner: Trial) -> dict[str, Settings]:
    """The settings of each control: the paper's uniform and theory ρ, TDEF, and one part changed at a time. Complement rewards are
    TDEF's. One ρ for all, the mean of the tuned ρ, keeps its size but not its imbalance."""
    others = {key: value for key, value in winner.settings.items() if not key.startswith("method.rho")}
    total = config["method"]["rho"]["total"]
    rule = {**others, "method.rho.total": total, "method.rho.offset": 0.0, "method.rho.values": None}
    one = {**others, "method.rho.values": [rounded(statistics.fmean(winner.rho))] * len(winner.rho)}
    complement = {"method.rewards": "complement"}
    rows: list[Settings] = [
        {**rule, "method.rho.rule": "uniform"},
        {**rule, "method.rho.rule": "theory"},
        one,
        {**winner.settings, **complement},
        {**one, **complement},
        {**others, **complement, "method.rho.values": [1.0] * len(winner.rho)},
    ]
    return dict(zip(CONTROLS, rows, strict=True))


def ablation_table(
    losses: Mapping[str, Mapping[int, float]], cells: Mapping[str, Sequence[Cell]], reference: str | None
) -> str:
    """Markdown: test deferral loss over the final seeds, the difference from the reference, shares."""
    against = [f"difference to {reference}, paired, 95 %"] if reference else []
    rows = []
    for name, found in losses.items():
        runs = [cell.run.metrics() for cell in cells[name] if cell.run.finished]
        row = [name, f"{len(found)}/{len(cells[name])}" if len(found) < len(cells[name]) else str(len(found))]
        row.append(with_std(*mean_std(list(found.values()))) if found else "missing")
        if reference:
            row.append(interval_text(None if name == reference else paired_interval(found, losses[reference])))
        row.append(" ".join(f"{value:.3g}" for value in (runs[0].rho if runs else [])))
        columns = zip(*(run.ratios for run in runs), strict=True)
        rows.append([*row, " / ".join(f"{100 * statistics.fmean(column):.1f}" for column in columns)])
    return markdown(["setting", "seeds", "test deferral loss", *against, "ρ", "to each expert, %"], rows)
