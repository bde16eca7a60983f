"""One search: run trials, choose the least validation deferral loss, then train the winner on several seeds. Trials are ordinary
runs: they resume, any launcher can spread them, and they are never repeated. Test results are read for the winner's table alone."""

import hashlib
import json
import math
import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from l2d.assembly.fingerprints import expert_names, with_listed_prices
from l2d.assembly.make import find
from l2d.config import Experiment, SearchSettings, check
from l2d.config.identity import choices, variant
from l2d.runs.cells import Cell, listing
from l2d.runs.folder import RunFolder
from l2d.runs.sweep import Workshop
from l2d.tuning.show import CONTROLS, Trial, ablation_table, controls, ordered, trial_rows, trials_figure
from l2d.tuning.strategies import Ask, Search, Space, begin_search
from l2d.utils.errors import L2DError, under
from l2d.utils.files import write_atomically, write_json, write_text
from l2d.utils.text import aligned, counted, csv_text


def build_study(shop: Workshop, overrides: Sequence[str], options: SearchSettings) -> "Study":
    experiment = with_listed_prices(check(shop.compose(overrides)))
    method = experiment.plain["method"]
    if experiment.trainer.devices > 1:
        raise L2DError("trainer.devices: a search gives each run one device")
    if options.ablation:
        from l2d.methods.comp_sum import CompSum

        if not (issubclass(find(experiment.method), CompSum) and isinstance(method["rho"], Mapping)):
            raise L2DError(f"tune.ablation=true: takes MILD apart, not method={method['name']}; use method=mild")
    with under(f"method={method['name']}"):
        search = begin_search(options, search_space(shop, overrides, options, method.get("rho")))
        return Study(shop, list(overrides), options, experiment, search, next(search))


def search_space(shop: Workshop, overrides: Sequence[str], options: SearchSettings, rho: Any) -> Space | None:
    """The ρ to search, with the shares of the first seed's training rows. rho: the method's own."""
    if rho is None or options.values is not None:
        return None
    if isinstance(rho, list):
        raise L2DError(f"method.rho={rho}: a search starts from one number, or from a rule (method=mild)")
    first = [f"seed={options.seeds[0]}", *([f"fold=1/{options.folds}"] if options.folds > 1 else [])]
    experiment = check(shop.compose([*overrides, *first]))
    # A dry run loads nothing: assume that all experts are cheapest equally often.
    if experiment.settings.dry_run and (p := len(expert_names(experiment))):
        return Space(rho, [1 / p] * p)
    from l2d.assembly.build import make_method, make_splits
    from l2d.core.rho import build_rho  # only now: it imports torch, and mistakes must be reported before

    splits = make_splits(experiment)
    costs = splits.train.costs
    built: Any = make_method(experiment, costs, splits.num_classes, largest_cost=splits.largest_cost)
    rule = {**rho, "values": None, "total": 1, "offset": 0} if isinstance(rho, Mapping) else 1 / costs.shape[1]
    return Space(rho, build_rho(rule, costs, built.rewards(costs)).tolist())


@dataclass
class Study:
    """One search: the settings it starts from, its first trials, and the trials so far."""

    shop: Workshop
    overrides: list[str]
    options: SearchSettings
    experiment: Experiment
    search: Search
    first: list[Ask]
    trials: dict[tuple[str, ...], Trial] = field(default_factory=dict)
    trial_runs: set[Path] = field(default_factory=set)
    workers: Path | None = None
    rounds: int = 0

    @property
    def title(self) -> str:
        return " ".join(choices(self.experiment.plain).values())

    @property
    def kind(self) -> str:
        """paper: a grid of ρ; values: a grid of the user's own values; optuna: later trials depend on the first ones."""
        own = self.options.search == "paper" and self.options.values is not None
        return "values" if own else str(self.options.search)

    @property
    def is_grid(self) -> bool:
        """True if all trials are known before the first is run."""
        return self.kind != "optuna"

    @property
    def folder(self) -> Path:
        """The folder of the search's table, picture and result. Other options are another search."""
        # "totals" was an option of earlier versions, and part of the name.
        options = {**asdict(self.options), "totals": None}
        identity = json.dumps([variant(self.experiment.plain), options], sort_keys=True, default=list)
        name = f"tune-{self.kind}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
        return RunFolder.of(self.experiment.plain).path.parent.parent / name

    @property
    def most_trials(self) -> int:
        return len(self.first) if self.is_grid else self.options.trials

    @property
    def most_finals(self) -> int:
        """The number of runs that the winner, and its controls if asked, take at most."""
        return (1 + (len(CONTROLS) if self.options.ablation else 0)) * len(self.options.final_seeds)

    def run(self) -> None:
        if self.experiment.settings.dry_run:
            self.list_trials()
            return
        many = f"{self.most_trials} trials{'' if self.is_grid else ' at most'}"
        how = "own values" if self.kind == "values" else self.kind
        print(f"\n{self.title}: search by validation deferral loss ({how}, {many}), into {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("result.json", "result.md"):  # of an earlier search; some of its runs may be gone
            (self.folder / name).unlink(missing_ok=True)
        self.run_trials()
        trials = self.ordered()
        picture = trials_figure(list(self.trials.values()), self.title)
        write_atomically(self.folder / "trials.png", lambda path: picture.savefig(path))
        if not (whole := [trial for trial in trials if trial.whole]):
            raise L2DError(f"no trial could be run: {next(iter(self.trials.values())).reason}")
        winner = whole[0]
        ties = sum(trial.value == winner.value for trial in whole[1:])
        tied = f", tied with {ties} more" if ties else ""
        print(f"\n{aligned(*trial_rows(trials))}")
        print(f"\nbest: {winner.name} (validation deferral loss {winner.value:.4f}{tied})")
        self.train_winner(winner)

    def list_trials(self) -> None:
        cells = {cell.run.path: cell for ask in self.first for cell in self.cells(ask)}
        more = "" if self.is_grid else " (the later ones depend on these)"
        how = "tune.values" if self.kind == "values" else f"tune.search={self.kind}"
        print(f"{self.title}: {how}, the first trials{more}:\n{listing([*cells.values()])}")
        what = "the winner and its controls" if self.options.ablation else "the winner"
        print(f"then {what}: {counted(self.most_finals, 'run')} at most")

    def run_trials(self) -> None:
        asks = self.first
        while asks:
            values = self.ask(asks)
            header, rows = trial_rows(self.ordered())
            write_text(self.folder / "trials.csv", csv_text([header, *rows]))
            try:
                asks = self.search.send(values)
            except StopIteration:
                return

    def ordered(self) -> list[Trial]:
        """Best first. Ties in a grid of ρ go to the last trial, since larger ρ are safer."""
        return ordered(list(self.trials.values()), last_wins=self.kind == "paper")

    def cells(self, ask: Ask) -> list[Cell]:
        """The runs of one trial: its seeds, or its seeds on each fold."""
        folds, seeds = self.options.folds, self.options.seeds
        parts = [[f"fold={j + 1}/{folds}"] for j in range(folds)] if folds > 1 else [[]]
        grid = [[*self.overrides, *ask.overrides, *part, f"seed={seed}"] for seed in seeds for part in parts]
        whole = self.shop.cells(grid)
        stop = epoch_of(ask, whole[0].epochs)
        part = stop < whole[0].epochs
        return self.shop.cells([[*overrides, f"stop_after={stop}"] for overrides in grid]) if part else whole

    def run_cells(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Each round of a search has its own folder for the status files of the workers."""
        self.workers, self.rounds = self.workers or self.shop.open(), self.rounds + 1
        folder = self.workers / str(self.rounds)
        folder.mkdir()
        return self.shop.run([*{cell.run.path: cell for cell in cells}.values()], folder)

    def ask(self, asks: Sequence[Ask]) -> list[float]:
        """Run trials as far as asked. Returns their values."""
        cells = [self.cells(ask) for ask in asks]
        self.trial_runs |= {cell.run.path for some in cells for cell in some}
        failed = self.run_cells([cell for some in cells for cell in some])
        reasons = {cell.run.path: reason for cell, reason in failed.items()}
        found = [judged(ask, some, reasons) for ask, some in zip(asks, cells, strict=True)]
        for ask, trial in zip(asks, found, strict=True):
            known = self.trials.get(ask.overrides)
            if known is None or not known.whole:  # a finished trial that is asked for again stays finished
                self.trials[ask.overrides] = trial
            best = min((other.value for other in self.trials.values() if other.whole), default=math.inf)
            least = f" (best so far {best:.4f})" if math.isfinite(best) else ""
            state = trial.reason or f"after epoch {trial.epoch} of {trial.epochs}"
            print(f"trial {len(self.trials)}: {trial.name}: {state}, validation deferral loss {trial.value:.4f}{least}")
        return [trial.value for trial in found]

    def train_winner(self, winner: Trial) -> None:
        """Train the winner, and its controls if asked, on the final seeds. Write result.md, and result.json if no run failed."""
        config, seeds = self.experiment.plain, self.options.final_seeds
        rows = {"tuned": Ask(winner.settings)} | (controls(config, winner) if self.options.ablation else {})
        grids = {name: [[*self.overrides, *ask.overrides, f"seed={s}"] for s in seeds] for name, ask in rows.items()}
        cells = {name: self.shop.cells(grid) for name, grid in grids.items()}
        print(f"\ntraining {', '.join(rows)} on {len(seeds)} seeds")
        failed = self.run_cells([cell for some in cells.values() for cell in some])
        finished = {name: [cell for cell in some if cell.run.finished] for name, some in cells.items()}
        losses = {name: {c.seed: c.run.metrics().deferral_loss for c in some} for name, some in finished.items()}
        text = ablation_table(losses, cells, "tdef" if len(rows) > 1 else None)
        command = shlex.join(["l2d", "tune", *self.overrides])
        foot = f"`{command}`; chosen by validation deferral loss among {len(self.trials)} trials"
        write_text(self.folder / "result.md", f"{self.title}: {winner.name}\n\n{text}\n\n{foot}\n")
        print(f"\n{text}\n\n{self.folder}")
        if failed:
            reason = next(iter(failed.values()))
            raise L2DError(f"{counted(len(failed), 'run')} failed: {reason}; the same command tries them again")

        result = {
            "start": self.place(RunFolder.of(config).path.parent),
            "winner": self.place(cells["tuned"][0].run.path.parent),
            "trial_runs": sorted(map(self.place, self.trial_runs)),
            "settings": dict(winner.settings),
            "overrides": list(Ask(winner.settings).overrides),
            "validation_deferral_loss": winner.value,
            "trials": len(self.trials),
            "test_deferral_loss": {name: {str(seed): one[seed] for seed in one} for name, one in losses.items()},
        }
        write_json(self.folder / "result.json", result)

    def place(self, path: Path) -> str:
        """Relative to the search's folder, so that runs/ may move."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


def epoch_of(ask: Ask, epochs: int) -> int:
    return max(1, round(ask.until * epochs))


def judged(ask: Ask, cells: Sequence[Cell], reasons: Mapping[Path, str]) -> Trial:
    """The trial of these runs: the mean of their validation losses, or the reason why one of them failed."""
    epochs = cells[0].epochs
    trial = Trial(ask.settings, math.inf, epoch_of(ask, epochs), epochs, len(cells))
    if wrong := [reasons[cell.run.path] for cell in cells if cell.run.path in reasons]:
        return replace(trial, reason=f"failed: {wrong[0]}")
    losses = [  # a finished run may have run out of patience before this epoch
        cell.run.validation_after(trial.epoch)
        if trial.epoch < epochs and not cell.run.finished
        else cell.run.metrics().validation.deferral_loss
        for cell in cells
    ]
    rho = cells[0].run.metrics().rho if cells[0].run.finished else []
    return replace(trial, value=statistics.fmean(losses), rho=rho)
