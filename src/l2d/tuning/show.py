"""The trials of a search as a table and a picture; the controls of a tuned MILD (tune.ablation=true); the winner's table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from l2d.analysis.report.averages import mean_std, paired_interval
from l2d.analysis.report.tables import interval_text, with_std
from l2d.runs.cells import Cell
from l2d.tuning.strategies import Ask, rounded
from l2d.utils.text import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ONE, COMPLEMENT = "tuned, one ρ for all", "complement rewards"
CONTROLS = ("uniform", "theory", ONE, f"tuned, {COMPLEMENT}", f"{ONE}, {COMPLEMENT}", "tdef")


@dataclass(frozen=True)
class Trial:
    """One setting and its result. value: its mean validation deferral loss, after `epoch` of `epochs`."""

    settings: Mapping[str, Any]
    value: float
    epoch: int
    epochs: int
    runs: int
    rho: list[float] = field(default_factory=list)
    reason: str = ""

    @property
    def whole(self) -> bool:
        return not self.reason and self.epoch == self.epochs

    @property
    def state(self) -> str:
        return self.reason or ("finished" if self.whole else f"pruned after epoch {self.epoch} of {self.epochs}")

    @property
    def name(self) -> str:
        return " ".join(Ask(self.settings).overrides) or "as it is"


def ordered(trials: Sequence[Trial], last_wins: bool) -> list[Trial]:
    """Best first; pruned and failed trials last. last_wins: ties go to the last trial, else to the first."""
    return sorted(reversed(trials) if last_wins else trials, key=lambda trial: (not trial.whole, trial.value))


def trial_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per trial."""
    rows = []
    for trial in trials:
        value = f"{trial.value:.4f}" if math.isfinite(trial.value) else "-"
        rows.append([trial.name, value, " ".join(f"{rho:.4g}" for rho in trial.rho), str(trial.runs), trial.state])
    return ["trial", "validation deferral loss", "ρ", "runs", "state"], rows


def controls(config: Mapping[str, Any], winner: Trial) -> dict[str, Ask]:
    """The settings of each control: the paper's uniform and theory ρ, TDEF, and one part changed at a time. Complement rewards are
    TDEF's. One ρ for all, the mean of the tuned ρ, keeps its size but not its imbalance."""
    others = {key: value for key, value in winner.settings.items() if not key.startswith("method.rho")}
    total = config["method"]["rho"]["total"]
    rule = {**others, "method.rho.total": total, "method.rho.offset": 0.0, "method.rho.values": None}
    one = {**others, "method.rho.values": [rounded(statistics.fmean(winner.rho))] * len(winner.rho)}
    complement = {"method.rewards": "complement"}
    rows: list[dict[str, Any]] = [
        {**rule, "method.rho.rule": "uniform"},
        {**rule, "method.rho.rule": "theory"},
        one,
        {**winner.settings, **complement},
        {**one, **complement},
        {**others, **complement, "method.rho.values": [1.0] * len(winner.rho)},
    ]
    return {name: Ask(settings) for name, settings in zip(CONTROLS, rows, strict=True)}


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


def trials_figure(trials: Sequence[Trial], title: str) -> "Figure":
    """Validation deferral loss against the mean ρ, and in the order of the trials with the best so far."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    picture = Figure(figsize=(10, 4), layout="constrained")
    against, order = picture.subplots(1, 2)
    with_rho = [trial for trial in trials if trial.whole and trial.rho]
    against.plot([statistics.fmean(trial.rho) for trial in with_rho], [trial.value for trial in with_rho], "o")
    against.set(xlabel="mean ρ", ylabel="validation deferral loss", title=title)
    if with_rho:
        against.set_xscale("log")
        against.xaxis.set_major_formatter(ScalarFormatter())
        against.xaxis.set_minor_formatter(NullFormatter())
    for kind, marker, whole in (("run to the end", "o", True), ("pruned", "x", False)):
        ended = {i: trial.value for i, trial in enumerate(trials, 1) if trial.whole == whole and not trial.reason}
        if ended:
            order.plot(list(ended), list(ended.values()), marker, label=kind)
    line = list(accumulate((trial.value if trial.whole else math.inf for trial in trials), min))
    order.step(range(1, len(line) + 1), line, where="post", color="grey", label="best so far")
    order.set(xlabel="trial", ylabel="validation deferral loss")
    order.legend()
    return picture
