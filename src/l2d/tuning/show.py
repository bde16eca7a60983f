"""The trials of a search as a table; the controls of a tuned MILD (tune.ablation=true); the winner's table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from l2d.analysis.report.averages import mean_columns, mean_std, paired_interval
from l2d.analysis.report.tables import interval_text, with_std
from l2d.core.results import RunMetrics
from l2d.tuning.grid import Settings, overrides_of, rounded
from l2d.utils.text import markdown

ONE, COMPLEMENT = "tuned, one ρ for all", "complement rewards"
CONTROLS = ("uniform", "theory", ONE, f"tuned, {COMPLEMENT}", f"{ONE}, {COMPLEMENT}", "tdef")


@dataclass(frozen=True)
class Trial:
    """One setting and its result. value: the mean validation deferral loss of its runs."""

    settings: Settings
    value: float
    runs: int
    rho: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return " ".join(overrides_of(self.settings)) or "as it is"


def trial_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [trial.name, f"{trial.value:.4f}", " ".join(f"{one:.4g}" for one in trial.rho), str(trial.runs)]
        for trial in trials
    ]
    return ["trial", "validation deferral loss", "ρ", "runs"], rows


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


def ablation_table(runs: Mapping[str, Mapping[int, RunMetrics]], reference: str | None) -> str:
    """Markdown: test deferral loss over the final seeds, the difference from the reference, shares. runs: by setting and seed."""
    against = [f"difference to {reference}, paired, 95 %"] if reference else []
    losses = {name: {seed: run.deferral_loss for seed, run in some.items()} for name, some in runs.items()}
    rows = []
    for name, found in losses.items():
        row = [name, str(len(found)), with_std(*mean_std([*found.values()]))]
        if reference:
            row.append(interval_text(None if name == reference else paired_interval(found, losses[reference])))
        first, *_ = own = [*runs[name].values()]
        shares = " / ".join(f"{100 * share:.1f}" for share in mean_columns(run.ratios for run in own))
        rows.append([*row, " ".join(f"{value:.3g}" for value in first.rho), shares])
    return markdown(["setting", "seeds", "test deferral loss", *against, "ρ", "to each expert, %"], rows)
