"""Search ρ by validation deferral loss, then train the winner on several seeds: l2d tune dataset=svhn setup=III.

With experiment=table1_error, one search for each of its datasets, setups and methods; its seeds are the winner's.

Trials are ordinary runs: they resume, any launcher can spread them, and they are never repeated. Only validation results decide.
Every run reports test results, but they are read only for the table of the winner.
"""

import csv
import hashlib
import io
import json
import math
import os
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from l2d.assembly.fingerprints import expert_names, with_listed_prices
from l2d.assembly.make import find
from l2d.config import SearchSettings, check, check_search
from l2d.config.checking import SET_BY_SEARCH
from l2d.config.identity import choices, variant
from l2d.runs.cells import Cell, listing, without_seed
from l2d.runs.folder import RunFolder
from l2d.runs.sweep import Workshop
from l2d.tuning.show import Trial, ablation_table, trials_figure
from l2d.tuning.strategies import GRIDS, Ask, NothingToSearch, Space, begin_search, rounded
from l2d.utils.errors import L2DError, under
from l2d.utils.files import write_atomically, write_json, write_text
from l2d.utils.text import aligned

CONTROLS = (
    "uniform",
    "theory",
    "tuned, one ρ for all",
    "tuned, complement rewards",
    "tuned, one ρ for all, complement rewards",
    "tdef",
)


def tune(shop: Workshop) -> None:
    """What `l2d tune` does: one search per combination of the overrides."""
    options = check_search(shop.config.tune)
    combinations = searched(shop.grid)
    given = {text.split("=")[0].lstrip("+~") for overrides in combinations for text in overrides}
    for key in SET_BY_SEARCH.keys() & given:
        raise L2DError(f"{key}: a search sets it itself; use {SET_BY_SEARCH[key]}")
    if {"evaluation=auto", "evaluation=cross_validate"} & {text for overrides in combinations for text in overrides}:
        raise L2DError(
            "evaluation: a search judges trials on validation rows, so use holdout; tune.folds cross-validates"
        )
    if shop.config.force:
        raise L2DError("force=true: a search reuses finished runs; remove those that you want to re-run")
    # All are built before the first is run: what cannot be searched fails at once.
    studies = build_studies(shop, combinations, options)
    if len(studies) > 1:
        trials = sum(study.most_trials for study in studies)
        finals = sum(study.most_finals for study in studies)
        print(f"{len(studies)} searches: {trials} trials at most, then {finals} runs of the winners at most")
    failed: dict[str, str] = {}
    for study in studies:
        try:
            study.run()
        except L2DError as error:
            if len(studies) == 1:
                raise
            failed[study.title] = str(error)
            print(f"error: {study.title}: {error}", file=sys.stderr)
    if failed:
        raise L2DError(f"{len(failed)} of {len(studies)} searches failed: {', '.join(failed)}")


def searched(grid: Sequence[Sequence[str]]) -> dict[tuple[str, ...], list[int]]:
    """The combinations to search, and the seeds of each winner if an experiment has seeds; else none."""
    found: dict[tuple[str, ...], list[int]] = {}
    for overrides in grid:
        by_experiment = any(text.startswith("experiment=") for text in overrides)
        others = without_seed(overrides) if by_experiment else tuple(overrides)
        seeds = [int(text.removeprefix("seed=")) for text in overrides if text not in others]
        found.setdefault(others, []).extend(seeds)
    return found


def build_studies(
    shop: Workshop, combinations: Mapping[tuple[str, ...], list[int]], options: SearchSettings
) -> list["Study"]:
    """An experiment may have methods without ρ: they are left out, unless there are no others."""
    studies, left_out = list[Study](), dict[str, NothingToSearch]()
    for overrides, seeds in combinations.items():
        said, own = list(overrides), options
        if seeds and not any(text.startswith("tune.final_seeds=") for text in overrides):
            said, own = [*said, f"tune.final_seeds=[{','.join(map(str, seeds))}]"], replace(options, final_seeds=seeds)
        try:
            studies.append(Study(shop, said, own))
        except NothingToSearch as error:
            if not any(text.startswith("experiment=") for text in overrides):
                raise
            left_out[error.parameter] = error
    if not studies:
        raise next(iter(left_out.values()))
    if left_out:
        print(f"left out, without ρ to search: {', '.join(left_out)}")
    return studies


class Study:
    """One search: the settings it starts from, its trials, and the folder for its table, picture and result."""

    def __init__(self, shop: Workshop, overrides: Sequence[str], options: SearchSettings) -> None:
        self.shop, self.overrides, self.options = shop, list(overrides), options
        self.experiment = with_listed_prices(check(shop.compose(overrides)))
        self.config = dict(self.experiment.plain)
        if self.experiment.trainer.devices > 1:
            raise L2DError("trainer.devices: a search gives each run one device")
        identity = json.dumps([variant(self.config), asdict(options)], sort_keys=True, default=list)
        kind = "values" if self.own_grid else options.search
        name = f"tune-{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
        self.folder = RunFolder.of(self.config).path.parent.parent / name
        self.title = " ".join(choices(self.config).values())
        self.trials: dict[tuple[str, ...], Trial] = {}
        self.trial_runs: set[Path] = set()
        method = self.config["method"]
        if options.ablation and not self.is_mild():
            raise L2DError(f"tune.ablation=true: takes MILD apart, not method={method['name']}; use method=mild")
        with under(f"method={method['name']}"):
            self.search = begin_search(options, self.space())
            self.asks = next(self.search)
        self.workers: Path | None = None
        self.rounds = 0

    def is_mild(self) -> bool:
        """Whether the ablation applies: the method has rewards, and a rule for size and imbalance of ρ."""
        from l2d.methods.comp_sum import CompSum

        by_rule = isinstance(self.config["method"].get("rho"), Mapping)
        return by_rule and issubclass(find(self.experiment.method), CompSum)

    @property
    def is_grid(self) -> bool:
        """Whether all trials are known before the first is run."""
        return self.options.search in GRIDS

    @property
    def own_grid(self) -> bool:
        """Whether the trials are all combinations of the user's own values, not a grid of ρ."""
        return self.is_grid and self.options.values is not None

    @property
    def most_trials(self) -> int:
        return len(self.asks) if self.is_grid else self.options.trials

    @property
    def most_finals(self) -> int:
        """How many runs the winner, and its controls if asked, take at most."""
        return (1 + (len(CONTROLS) if self.options.ablation else 0)) * len(self.options.final_seeds)

    def run(self) -> None:
        search, asks = self.search, self.asks
        if self.experiment.settings.dry_run:
            cells = {cell.run.path: cell for ask in asks for cell in self.cells(ask)}
            more = "" if self.is_grid else " (the later ones depend on these)"
            by_shares = self.options.search in ("per_expert", "coordinate") and self.options.values is None
            if by_shares and isinstance(self.config["method"]["rho"], Mapping):
                more += " (ρ as if all experts had equal shares; the search reads them from the data)"
            how = "tune.values" if self.own_grid else f"tune.search={self.options.search}"
            print(f"{self.title}: {how}, the first trials{more}:\n{listing([*cells.values()])}")
            number = self.most_finals
            what = "the winner and its controls" if self.options.ablation else "the winner"
            print(f"then {what}: {number} {'run' if number == 1 else 'runs'} at most")
            return
        many = f"{self.most_trials} trials{'' if self.is_grid else ' at most'}"
        how = "own values" if self.own_grid else str(self.options.search)
        print(f"\n{self.title}: search by validation deferral loss ({how}, {many}), into {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("result.json", "result.md"):  # of an earlier search; some of its runs may be gone
            (self.folder / name).unlink(missing_ok=True)
        while asks:
            values = self.ask(asks)
            self.write_trials()
            try:
                asks = search.send(values)
            except StopIteration:
                break
        picture = trials_figure(list(self.trials.values()), self.title)
        write_atomically(self.folder / "trials.png", lambda path: picture.savefig(path))
        whole = [trial for trial in self.ordered() if trial.whole]
        if not whole:
            raise L2DError(f"no trial could be run: {next(iter(self.trials.values())).reason}")
        winner = whole[0]
        ties = sum(trial.value == winner.value for trial in whole) - 1
        tied = f", tied with {ties} more" if ties else ""
        print(f"\n{self.table()}\n\nbest: {winner.name} (validation deferral loss {winner.value:.4f}{tied})")
        self.finish(winner)

    def space(self) -> Space | None:
        method = self.config["method"]
        rho = method.get("rho")
        if rho is None or self.options.values is not None:
            return None
        if isinstance(rho, list):
            raise L2DError(f"method.rho={rho}: a search starts from one number, or from a rule (method=mild)")
        first = [f"seed={self.options.seeds[0]}", *([f"fold=1/{self.options.folds}"] if self.options.folds > 1 else [])]
        experiment = check(self.shop.compose([*self.overrides, *first]))
        # A dry run loads nothing: assume that all experts are cheapest equally often.
        if experiment.settings.dry_run and (p := len(expert_names(experiment))):
            return Space(rho, [1 / p] * p)
        from l2d.assembly.build import make_method, make_splits
        from l2d.core.rho import build_rho  # only now: it imports torch, and mistakes must be reported before

        splits = make_splits(experiment)
        costs = splits.train.costs
        built: Any = make_method(experiment, costs, splits.num_classes, splits.largest_cost)
        rule = {**rho, "values": None, "total": 1, "offset": 0} if isinstance(rho, Mapping) else 1 / costs.shape[1]
        return Space(rho, build_rho(rule, costs, built.rewards(costs)).tolist())

    def cells(self, ask: Ask) -> list[Cell]:
        """The runs of one trial: its seeds, or its seeds on each fold."""
        folds = (
            [f"fold={j + 1}/{self.options.folds}" for j in range(self.options.folds)] if self.options.folds > 1 else []
        )
        grid = [
            [*self.overrides, *ask.overrides, *fold, f"seed={seed}"]
            for seed in self.options.seeds
            for fold in ([[text] for text in folds] or [[]])
        ]
        whole = self.shop.cells(grid)
        stop = epoch_of(ask, whole[0].epochs)
        if stop == whole[0].epochs:
            return whole
        return self.shop.cells([[*overrides, f"stop_after={stop}"] for overrides in grid])

    def run_cells(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Each round of a search has its own folder for the status files of the workers."""
        if self.workers is None:
            self.workers = self.shop.open()
        self.rounds += 1
        folder = self.workers / str(self.rounds)
        folder.mkdir()
        return self.shop.run(cells, folder)

    def ask(self, asks: Sequence[Ask]) -> list[float]:
        """Run trials as far as asked. Returns their values."""
        cells = [self.cells(ask) for ask in asks]
        self.trial_runs |= {cell.run.path for some in cells for cell in some}
        failed = self.run_cells([*{cell.run.path: cell for some in cells for cell in some}.values()])
        reasons = {cell.run.path: reason for cell, reason in failed.items()}
        values: list[float] = []
        for ask, some in zip(asks, cells, strict=True):
            epochs = some[0].epochs
            trial = Trial(ask.settings, math.inf, epoch_of(ask, epochs), epochs, len(some))
            wrong = [reasons[cell.run.path] for cell in some if cell.run.path in reasons]
            if wrong:
                trial.reason = f"failed: {wrong[0]}"
            else:
                trial.value = statistics.fmean(self.validation(cell, trial.epoch) for cell in some)
                if some[0].run.finished:
                    trial.rho = some[0].run.metrics().rho
            values.append(trial.value)
            known = self.trials.get(ask.overrides)
            if known is None or not known.whole:  # a finished trial that is asked for again stays finished
                self.trials[ask.overrides] = trial
            best = min((other.value for other in self.trials.values() if other.whole), default=math.inf)
            print(
                f"trial {len(self.trials)}: {trial.name}: {trial.reason or f'after epoch {trial.epoch} of {epochs}'},"
                f" validation deferral loss {trial.value:.4f}"
                + (f" (best so far {best:.4f})" if math.isfinite(best) else "")
            )
        return values

    @staticmethod
    def validation(cell: Cell, epoch: int) -> float:
        if epoch < cell.epochs and not cell.run.finished:  # it may have run out of patience before
            return cell.run.validation_after(epoch)
        return cell.run.metrics().validation.deferral_loss

    def table(self) -> str:
        header, rows = self.trial_rows()
        return aligned(header, rows)

    def ordered(self) -> list[Trial]:
        """Best first; pruned and failed trials last.

        Ties in a grid go to the last, since larger ρ are safer; elsewhere to the first, which is nearest to the start.
        """
        grid = self.is_grid and not self.own_grid
        trials = list(self.trials.values())
        return sorted(reversed(trials) if grid else trials, key=lambda trial: (not trial.whole, trial.value))

    def trial_rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and a row per trial."""
        rows = [
            [
                trial.name,
                f"{trial.value:.4f}" if math.isfinite(trial.value) else "-",
                " ".join(f"{value:.4g}" for value in trial.rho),
                str(trial.runs),
                trial.state,
            ]
            for trial in self.ordered()
        ]
        return ["trial", "validation deferral loss", "ρ", "runs", "state"], rows

    def write_trials(self) -> None:
        header, rows = self.trial_rows()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        write_text(self.folder / "trials.csv", text.getvalue())

    def finish(self, winner: Trial) -> None:
        """Train the winner, and the controls if asked, on the final seeds. Only here are test results read."""
        rows = {"tuned": Ask(winner.settings)} | (controls(self.config, winner) if self.options.ablation else {})
        seeds = self.options.final_seeds
        cells = {
            name: self.shop.cells([[*self.overrides, *ask.overrides, f"seed={seed}"] for seed in seeds])
            for name, ask in rows.items()
        }
        print(f"\ntraining {', '.join(rows)} on {len(seeds)} seeds")
        different = {cell.run.path: cell for some in cells.values() for cell in some}
        failed = self.run_cells([*different.values()])
        losses = {
            name: {cell.seed: cell.run.metrics().deferral_loss for cell in some if cell.run.finished}
            for name, some in cells.items()
        }
        text = ablation_table(
            losses, cells, tuple(choices(self.config).values())[:4], "tdef" if len(rows) > 1 else None
        )
        command = shlex.join(["l2d", "tune", *self.overrides])
        foot = f"`{command}`; chosen by validation deferral loss among {len(self.trials)} trials"
        write_text(self.folder / "result.md", f"{self.title}: {winner.name}\n\n{text}\n\n{foot}\n")
        print(f"\n{text}\n\n{self.folder}")
        if failed:
            runs = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
            raise L2DError(f"{runs} failed: {next(iter(failed.values()))}; the same command tries them again")
        start = RunFolder.of(self.config).path.parent
        result = {
            "start": self.place(start),
            "winner": self.place(cells["tuned"][0].run.path.parent),
            "trial_runs": sorted(map(self.place, self.trial_runs)),
            "settings": dict(winner.settings),
            "overrides": list(Ask(winner.settings).overrides),
            "validation_deferral_loss": winner.value,
            "trials": len(self.trials),
            "test_deferral_loss": {
                name: {str(seed): loss for seed, loss in found.items()} for name, found in losses.items()
            },
        }
        write_json(self.folder / "result.json", result)

    def place(self, path: Path) -> str:
        """Relative to the search's folder, so that runs/ may move."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


def epoch_of(ask: Ask, epochs: int) -> int:
    return max(1, round(ask.until * epochs))


def controls(config: Mapping[str, Any], winner: Trial) -> dict[str, Ask]:
    """Controls for the parts of a tuned MILD: the paper's uniform and theory ρ, TDEF, and one part changed at a time.

    Complement rewards are TDEF's. One ρ for all, the mean of the tuned ρ, keeps its size but not its imbalance.
    """
    others = {key: value for key, value in winner.settings.items() if not key.startswith("method.rho")}
    total = config["method"]["rho"]["total"]
    rule = {**others, "method.rho.total": total, "method.rho.offset": 0.0, "method.rho.values": None}
    one = {**others, "method.rho.values": [rounded(statistics.fmean(winner.rho))] * len(winner.rho)}
    complement = {"method.rewards": "complement"}
    rows: dict[str, dict[str, Any]] = {
        "uniform": {**rule, "method.rho.rule": "uniform"},
        "theory": {**rule, "method.rho.rule": "theory"},
        "tuned, one ρ for all": one,
        "tuned, complement rewards": {**winner.settings, **complement},
        "tuned, one ρ for all, complement rewards": {**one, **complement},
        "tdef": {**others, **complement, "method.rho.values": [1.0] * len(winner.rho)},
    }
    assert tuple(rows) == CONTROLS
    return {name: Ask(settings) for name, settings in rows.items()}
