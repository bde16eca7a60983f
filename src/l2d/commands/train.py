"""l2d train: train and score one router, or with -m many."""

import io
import os
import shlex
from contextlib import nullcontext, redirect_stdout, suppress
from typing import Any

from l2d.assembly.fingerprints import data_fingerprint, with_fingerprints, with_listed_prices
from l2d.assembly.make import find, make_dataset
from l2d.commands.hydra_command import HydraCommand, run_hydra_command
from l2d.config import Experiment, check, check_search
from l2d.core.prices import Prices, price_hint
from l2d.core.results import RunMetrics
from l2d.lightning.quick_imports import freeze_what_lives, import_quickly
from l2d.runs.folder import RunFolder
from l2d.runs.summary import format_line, format_table, run_figure
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.own_modules import changed_since
from l2d.utils.user_errors import answering

COMMAND = HydraCommand(
    name="train",
    config="train",
    description="Train a router over fixed experts, score it on rows that it did not see, keep everything in runs/.",
    examples=[
        "l2d train setup=I method=tdef method.rho=5.2",
        "l2d train dataset=table dataset.path=my.csv                your own table: docs/your_table.md",
        "l2d train -m method=tdef,mild,ce,cwce,ldam seed=0,1        ten runs, one after the other",
        "l2d train -m experiment=table1_error dataset=svhn dry_run=true   what a table needs, and what is left",
        "l2d train -m experiment=price_curve dataset=mmlu_sim       prices times 0 … 2; l2d curve draws it",
    ],
)


def train_job(cfg: Any) -> None:
    from l2d.config.hydra_adapter import chosen_experiment, in_a_sweep

    experiment = with_listed_prices(check(cfg))
    search = check_search(cfg.tune).search
    if not in_a_sweep() and (name := chosen_experiment()):
        raise L2DError(f"experiment={name}: is a sweep; put -m before it")
    if search is not None and not in_a_sweep():
        raise ParameterError("tune.search", "is for l2d tune", search)
    # A search prints the validation loss of its trials; their test figures are not for its reader.
    with redirect_stdout(io.StringIO()) if search is not None else nullcontext():
        run = RunFolder.of(experiment.plain)
        if answered(experiment, run):
            say_what_next(experiment, run)
            return
        find(experiment.logger).check()
        experiment = with_fingerprints(experiment)  # before torch is imported: a missing file is an error at once
        import_quickly()
        from l2d.assembly.build import check_parts
        from l2d.lightning.learner import ended_by_signals
        from l2d.training.cross_validation import train_and_judge

        train = train_and_judge
        if make_dataset(experiment).files is not None:
            from l2d.large.train import train_large as train  # type: ignore[assignment]
        freeze_what_lives()
        check_parts(experiment)
        with ended_by_signals():
            metrics = train(experiment, run)
        if is_first_process():
            prices = Prices.of(experiment.plain)
            alone = f"\n{run.candidates}{format_table(metrics, prices)}\n\n{run.path}"
            print(f"{format_line(metrics, prices)}  {run.path}" if in_a_sweep() else alone)
        say_what_next(experiment, run)


def answered(experiment: Experiment, run: RunFolder) -> bool:
    """True if there is nothing to do: the run is finished, or this is a dry run. Prints which."""
    settings = experiment.settings
    done = run.finished and not settings.force
    if done:
        run.check_data(data_fingerprint(experiment))
    if settings.dry_run:
        print(f"{run.standing}; nothing was run (dry_run=true)\n{run.path}")
    elif done:
        table = format_table(run.metrics(), Prices.of(experiment.plain))
        print(f"{table}\n\nfinished already (force=true re-runs it)\n{run.path}")
        for file in changed_since(experiment.own_modules, run.stamp / 1e9):
            print(f"WARNING: {file} was changed after this run; force=true trains with the new code")
    return done or settings.dry_run


def is_first_process() -> bool:
    """True for the process that prints, if several train one run on several devices."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def say_what_next(experiment: Experiment, run: RunFolder) -> None:
    """After a single run that is finished. Its picture is drawn now: nobody looks at those of a sweep one by one."""
    from l2d.config.hydra_adapter import in_a_sweep

    if run.finished and not experiment.settings.dry_run and not in_a_sweep() and is_first_process():
        metrics, picture = run.metrics(), run.path / "deferral.png"
        if not picture.exists():
            with suppress(OSError):  # a folder that cannot be written has its numbers all the same
                write_atomically(picture, run_figure(metrics).savefig)
        hint = price_hint(experiment.plain, metrics.prices, [expert.error_rate for expert in metrics.experts])
        following = what_next(experiment, shlex.quote(str(run.path)), metrics)
        print(f"\n{hint}\n\n{following}" if hint else f"\n{following}")


def what_next(experiment: Experiment, folder: str, metrics: RunMetrics) -> str:
    parts, reads = (experiment.method, experiment.router), experiment.plain["router"].get("reads")
    trust = "".join(f" --trust {part.own_module}" for part in parts if part.own_module is not None)
    images = reads is None and experiment.router.own_module is None and experiment.dataset.own_module is None
    query = "--image new.png" if images else "--file new.csv"
    # Tokens are no numbers that a server could keep for the next router.
    kept = " --keep text" if (reads or {}).get("name") == "tokens" else ""
    look = "curve" if metrics.capabilities.takes_prices_later and any(metrics.prices) else "report"
    route = [f"route {folder} {query}{trust}"] if metrics.plans is None else []  # a plan needs answers
    commands = (f"{look} {folder}", *route, f"serve {folder}{kept}{trust}")
    return "\n".join(["next:", *(f"  l2d {command}" for command in commands)])


def main(arguments: list[str]) -> None:
    if "dataset=table" in arguments:
        from l2d.commands.check import guessed_keys

        with answering():
            arguments = [*arguments, *guessed_keys(arguments)]
    run_hydra_command(COMMAND, train_job, arguments)
