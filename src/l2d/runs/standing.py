"""The state of a run, read from its folder before anything is loaded. No torch, so the answer comes at once."""

from enum import Enum

from l2d.assembly.fingerprints import data_fingerprint
from l2d.config import Experiment
from l2d.core.prices import Prices
from l2d.runs.folder import RunFolder
from l2d.runs.summary import format_table
from l2d.utils.own_modules import changed_since
from l2d.utils.text import say


class Standing(Enum):
    """paused: stopped after the epoch that stop_after names, or a later one."""

    FINISHED = "finished"
    PAUSED = "paused"
    BEGUN = "begun"
    MISSING = "missing"


def standing_of(run: RunFolder, stop_after: int | None = None) -> Standing:
    if run.finished:
        return Standing.FINISHED
    if stop_after is not None and run.paused_after >= stop_after:
        return Standing.PAUSED
    return Standing.MISSING if run.last_checkpoint is None and not run.folds.exists() else Standing.BEGUN


def answered(experiment: Experiment, run: RunFolder) -> bool:
    """True if there is nothing to do: the run is finished or paused, or this is a dry run. Prints which."""
    settings = experiment.settings
    standing = standing_of(run, settings.stop_after)
    if standing is Standing.FINISHED and not settings.force:
        run.check_data(data_fingerprint(experiment))
        if settings.dry_run:
            print(f"finished already; nothing was run (dry_run=true)\n{run.path}")
        else:
            say_finished(run, experiment.own_modules, Prices.of(experiment.plain))
    elif standing is Standing.PAUSED:
        run.check_data(data_fingerprint(experiment))
        print(f"stopped after epoch {run.paused_after} already (stop_after={settings.stop_after})\n{run.path}")
    elif settings.dry_run:
        print(f"{standing.value}; nothing was run (dry_run=true)\n{run.path}")
    else:
        return False
    return True


def say_finished(run: RunFolder, own_modules: set[str], prices: Prices) -> None:
    """own_modules: the user's modules that the run's classes come from. prices: how losses are printed."""
    say(f"{format_table(run.metrics(), prices)}\n\nfinished already (force=true re-runs it)\n{run.path}")
    for file in changed_since(own_modules, (run.path / "metrics.json").stat().st_mtime):
        say(f"WARNING: {file} was changed after this run; force=true trains with the new code")
