"""One search: run trials, choose the least validation deferral loss, then train the winner on several seeds. Trials are ordinary
runs: they resume, any launcher can spread them, and they are never repeated. Test results are read for the winner's table alone."""

import hashlib
import json
import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from l2d.analysis.report.averages import mean_columns, mean_std
from l2d.analysis.report.tables import with_std
from l2d.assembly.fingerprints import expert_names, with_listed_prices
from l2d.config import Experiment, SearchSettings, check
from l2d.config.composing import override_text
from l2d.config.identity import choices, variant
from l2d.core.results import RunMetrics
from l2d.runs.cells import Cell, listing
from l2d.runs.folder import RunFolder
from l2d.runs.sweep import Workshop
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.files import write_json, write_text
from l2d.utils.text import aligned, counted, csv_text, markdown

# Options of earlier versions with their defaults: they are part of the name of a search's folder.
FORMER = {"totals": None, "trials": 40, "recipe": False, "rungs": [0.3, 0.6], "parallel": 1, "ablation": False}
Settings = dict[str, Any]


class NothingToSearch(ParameterError):
    """The method has no ρ, and nothing else was named."""


@dataclass(frozen=True)
class Trial:
    """One setting and its result. value: the mean validation deferral loss of its runs."""

    settings: Settings
    value: float
    runs: int
    rho: list[float]

    @property
    def name(self) -> str:
        return " ".join(overrides_of(self.settings)) or "as it is"


def build_study(shop: Workshop, overrides: Sequence[str], options: SearchSettings) -> "Study":
    experiment = with_listed_prices(check(shop.compose(overrides)))
    method = experiment.plain["method"]
    if experiment.trainer.devices > 1:
        raise L2DError("trainer.devices: a search gives each run one device")
    with under(f"method={method['name']}"):
        if options.values is not None:
            trials = own_grid(options.values)
        elif (rho := method.get("rho")) is None:
            raise NothingToSearch("", "has no ρ to search; name keys, such as tune.values='{recipe.epochs: [5, 10]}'")
        else:
            trials = rho_grid(rho, shares_of_rho(shop, overrides, options, rho), options.offsets)
        return Study(shop, list(overrides), options, experiment, trials)


def shares_of_rho(shop: Workshop, overrides: Sequence[str], options: SearchSettings, rho: Any) -> list[float]:
    """The experts' shares of ρ̄ on the first seed's training rows. rho: the method's own."""
    if isinstance(rho, list):
        raise L2DError(f"method.rho={rho}: a search starts from one number, or from a rule (method=mild)")
    first = [f"seed={options.seeds[0]}", *([f"fold=1/{options.folds}"] if options.folds > 1 else [])]
    experiment = check(shop.compose([*overrides, *first]))
    # A dry run loads nothing: assume that all experts are cheapest equally often.
    if experiment.settings.dry_run and (p := len(expert_names(experiment))):
        return [1 / p] * p
    from l2d.assembly.build import make_method, make_splits
    from l2d.core.rho import build_rho  # only now: it imports torch, and mistakes must be reported before

    splits = make_splits(experiment)
    costs = splits.train.costs
    built: Any = make_method(experiment, costs, splits.arrays.num_classes, largest_cost=splits.largest_cost)
    rule = {**rho, "values": None, "total": 1, "offset": 0} if isinstance(rho, Mapping) else 1 / costs.shape[1]
    return build_rho(rule, costs, built.rewards(costs)).tolist()


@dataclass(frozen=True)
class Study:
    """One search: the settings it starts from, and those of its trials."""

    shop: Workshop
    overrides: list[str]
    options: SearchSettings
    experiment: Experiment
    trials: list[Settings]

    @property
    def title(self) -> str:
        return " ".join(choices(self.experiment.plain).values())

    @property
    def folder(self) -> Path:
        """The folder of the search's table and result. Other options are another search."""
        options = {**asdict(self.options), **FORMER}
        identity = json.dumps([variant(self.experiment.plain), options], sort_keys=True, default=list)
        kind = "paper" if self.options.values is None else "values"
        name = f"tune-{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
        return RunFolder.of(self.experiment.plain).path.parent.parent / name

    def run(self) -> None:
        grids = [self.grid(settings) for settings in self.trials]
        if self.experiment.settings.dry_run:
            cells = {cell.run.path: cell for grid in grids for cell in self.shop.cells(grid)}
            print(f"{self.title}: the trials:\n{listing([*cells.values()])}")
            print(f"then the winner: {counted(len(self.options.final_seeds), 'run')} at most")
            return
        many = counted(len(self.trials), "trial")
        print(f"\n{self.title}: search by validation deferral loss ({many}), into {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("result.json", "result.md"):  # of an earlier search; some of its runs may be gone
            (self.folder / name).unlink(missing_ok=True)
        workers, cells_of = self.shop.open(), [self.shop.cells(grid) for grid in grids]
        self.run_cells([cell for cells in cells_of for cell in cells], workers / "trials")
        found = [judged(settings, cells) for settings, cells in zip(self.trials, cells_of, strict=True)]
        # Ties in a grid of ρ go to the last trial, since larger ρ are safer.
        best_first = sorted(found if self.options.values else reversed(found), key=lambda trial: trial.value)
        header = ["trial", "validation deferral loss", "ρ", "runs"]
        rows = [
            [one.name, f"{one.value:.4f}", " ".join(f"{rho:.4g}" for rho in one.rho), str(one.runs)]
            for one in best_first
        ]
        write_text(self.folder / "trials.csv", csv_text([header, *rows]))
        winner = best_first[0]
        ties = sum(trial.value == winner.value for trial in best_first[1:])
        tied = f", tied with {ties} more" if ties else ""
        print(f"\n{aligned(header, rows)}")
        print(f"\nbest: {winner.name} (validation deferral loss {winner.value:.4f}{tied})")
        self.train_winner(winner, {cell.run.path for cells in cells_of for cell in cells}, workers / "winner")

    def grid(self, settings: Settings) -> list[list[str]]:
        """The runs of one trial: its seeds, or its seeds on each fold."""
        folds, seeds = self.options.folds, self.options.seeds
        parts = [[f"fold={j + 1}/{folds}"] for j in range(folds)] if folds > 1 else [[]]
        return [[*self.overrides, *overrides_of(settings), *part, f"seed={seed}"] for seed in seeds for part in parts]

    def run_cells(self, cells: Sequence[Cell], workers: Path) -> None:
        """Raises L2DError if a run failed. workers: a new folder for their status files."""
        workers.mkdir()
        if failed := self.shop.run([*{cell.run.path: cell for cell in cells}.values()], workers):
            (cell, reason), *_ = failed.items()
            said = f"{counted(len(failed), 'run')} failed: {' '.join(cell.overrides)}: {reason}"
            raise L2DError(f"{said}; the same command tries again")

    def train_winner(self, winner: Trial, trial_runs: set[Path], workers: Path) -> None:
        """Train the winner on the final seeds. Write result.md and result.json."""
        seeds, chosen = self.options.final_seeds, overrides_of(winner.settings)
        cells = self.shop.cells([[*self.overrides, *chosen, f"seed={seed}"] for seed in seeds])
        print(f"\ntraining the winner on {counted(len(seeds), 'seed')}")
        self.run_cells(cells, workers)
        runs = {cell.seed: cell.run.metrics() for cell in cells}
        text = winner_table([*runs.values()])
        command = shlex.join(["l2d", "tune", *self.overrides])
        foot = f"`{command}`; chosen by validation deferral loss among {len(self.trials)} trials"
        write_text(self.folder / "result.md", f"{self.title}: {winner.name}\n\n{text}\n\n{foot}\n")
        print(f"\n{text}\n\n{self.folder}")
        result = {
            "start": self.place(RunFolder.of(self.experiment.plain).path.parent),
            "winner": self.place(cells[0].run.path.parent),
            "trial_runs": sorted(map(self.place, trial_runs)),
            "settings": winner.settings,
            "overrides": list(chosen),
            "validation_deferral_loss": winner.value,
            "trials": len(self.trials),
            "test_deferral_loss": {"tuned": {str(seed): run.deferral_loss for seed, run in runs.items()}},
        }
        write_json(self.folder / "result.json", result)

    def place(self, path: Path) -> str:
        """Relative to the search's folder, so that runs/ may move."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


def judged(settings: Settings, cells: Sequence[Cell]) -> Trial:
    found = [cell.run.metrics() for cell in cells]
    value = statistics.fmean(metrics.validation.deferral_loss for metrics in found)
    return Trial(settings, value, len(cells), found[0].rho)


def winner_table(runs: Sequence[RunMetrics]) -> str:
    """Markdown: test deferral loss over the final seeds, ρ, shares."""
    loss, first = with_std(*mean_std([run.deferral_loss for run in runs])), runs[0]
    shares = " / ".join(f"{100 * share:.1f}" for share in mean_columns(run.ratios for run in runs))
    row = ["tuned", str(len(runs)), loss, " ".join(f"{value:.3g}" for value in first.rho), shares]
    return markdown(["setting", "seeds", "test deferral loss", "ρ", "to each expert, %"], [row])


def overrides_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={override_text(value)}" for key, value in settings.items())


def own_grid(values: Mapping[str, Sequence[Any]]) -> list[Settings]:
    return different([dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())])


def rho_grid(rho: Any, shares: Sequence[float], offsets: Sequence[float] | None) -> list[Settings]:
    """rho: the method's own. shares: the experts' shares of ρ̄, which sum to 1."""
    tried = range(-5, 6) if offsets is None else offsets  # the paper's interval, in steps of 1
    found = [settings for offset in tried if (settings := rho_at(rho, shares, offset)) is not None]
    if not found:
        raise L2DError(f"tune.offsets={list(tried)}: none of them leaves every ρ positive")
    return different(found)


def rho_at(rho: Any, shares: Sequence[float], offset: float) -> Settings | None:
    """The settings for ρ_k = total·share_k + offset; None if some ρ is not positive. A single ρ is 1/p + offset: as many values as
    a rule with total=1 has, and the same mean."""
    if isinstance(rho, Mapping):
        total = float(rho["total"])
        if min(total * share + offset for share in shares) <= 0:
            return None
        settings = {"method.rho.total": total, "method.rho.offset": offset}
        return settings | ({} if rho["values"] is None else {"method.rho.values": None})
    value = float(f"{1 / len(shares) + offset:.4g}")  # for files and command lines
    return {"method.rho": value} if value > 0 else None


def different(settings: Sequence[Settings]) -> list[Settings]:
    return [one for place, one in enumerate(settings) if one not in settings[:place]]
