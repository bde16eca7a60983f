"""l2d train: train and score one router, or with -m many."""

import io
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from l2d.assembly.fingerprints import with_fingerprints, with_listed_prices
from l2d.assembly.make import find
from l2d.commands.hydra_command import HydraCommand, run_hydra_command
from l2d.config import Experiment, check, check_search
from l2d.core.prices import Prices, price_hint
from l2d.core.results import RunMetrics
from l2d.lightning.quick_imports import freeze_what_lives, import_quickly
from l2d.runs.folder import RunFolder
from l2d.runs.standing import answered
from l2d.runs.summary import format_line, format_table, write_run_picture
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.text import say
from l2d.utils.user_errors import answering

COMMAND = HydraCommand(
    name="train",
    config="train",
    description="Train a router over fixed experts, score it on rows that it did not see, keep everything in runs/.",
    examples=[
        "l2d train setup=I method=tdef method.rho=5.2",
        "l2d train experts=trained experts.cross_fit=5              experts that are trained first, if they are not there",
        "l2d train dataset=table dataset.path=my.csv                your own table: docs/your_table.md",
        "l2d train -m method=tdef,mild,ce,cwce,ldam seed=0,1        ten runs, one after the other",
        "l2d train -m experiment=table1_error dataset=svhn dry_run=true   what a table needs, and what is left",
        "l2d report                                                 tables and plots of what is finished",
        "l2d train -m experiment=price_curve dataset=mmlu_sim       prices times 0 … 2; l2d curve draws it",
    ],
    resumes="resumes after the last epoch that was saved, if any was",
)
# Overrides that are not for the runs of a comparison.
ONE_RUN = re.compile(r"[+~]*(method|seed|force|trainer\.devices)\b")
OWN_METHOD = re.compile(r"[+~]*method\.")  # what other methods do not take
LOOKS = {"curve": "draw error against price", "report": "make a page of tables and plots"}


def train_job(cfg: Any) -> None:
    """Run one experiment, unless its folder is finished."""
    from l2d.config.hydra_adapter import chosen_experiment, in_a_sweep

    experiment = with_listed_prices(check(cfg))
    search = check_search(cfg.tune).search
    if not in_a_sweep() and (name := chosen_experiment()):
        raise L2DError(f"experiment={name}: is a sweep; put -m before it")
    if search is not None and not in_a_sweep():
        raise ParameterError("tune.search", "is for l2d tune", search)
    if in_a_sweep() and experiment.trainer.devices > 1:
        raise L2DError("trainer.devices: a sweep gives each run one device; several devices work on one run only")
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
        from l2d.lightning.learner import ended_by_signals, hide_missing_gpu, on_gpu
        from l2d.training.cross_validation import train_and_judge

        freeze_what_lives()
        hide_missing_gpu()
        if not on_gpu(experiment.trainer.accelerator):
            check_cores(experiment.trainer.devices)
        check_parts(experiment)
        with ended_by_signals():
            metrics = train_and_judge(experiment, run)
        if metrics is not None and is_first_process():
            prices = Prices.of(experiment.plain)
            alone = f"\n{run.candidates}{format_table(metrics, prices)}\n\n{run.path}"
            say(f"{format_line(metrics, prices)}  {run.path}" if in_a_sweep() else alone)
        say_what_next(experiment, run)


def check_cores(devices: int) -> None:
    """On CPUs each device is a process. Many more of them than cores would only wait for each other."""
    cores = os.cpu_count() or 1
    if devices > cores:
        raise ParameterError("trainer.devices", f"without GPUs at most one per core; there are {cores}", devices)


def is_first_process() -> bool:
    """True for the process that prints, if several train one run on several devices."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def say_what_next(experiment: Experiment, run: RunFolder) -> None:
    """After a single run that is finished. Its picture is drawn now: nobody looks at those of a sweep one by one."""
    from l2d.config.hydra_adapter import given_config_dir, given_overrides, in_a_sweep

    if run.finished and not experiment.settings.dry_run and not in_a_sweep() and is_first_process():
        metrics, picture = run.metrics(), run.path / "deferral.png"
        if not picture.exists():
            with suppress(OSError):  # a folder that cannot be written has its numbers all the same
                write_atomically(picture, partial(write_run_picture, metrics))
        hint = price_hint(experiment.plain, metrics.prices, [expert.error_rate for expert in metrics.experts])
        following = what_next(experiment, run.path, metrics, given_overrides(), given_config_dir())
        print(f"\n{hint}\n\n{following}" if hint else f"\n{following}")


def what_next(
    experiment: Experiment, folder: Path, metrics: RunMetrics, overrides: Sequence[str], config_dir: str | None = None
) -> str:
    """The most useful commands, each beneath what it is for."""
    dataset, method = experiment.plain["dataset"], experiment.method.name
    modules = (experiment.method.own_module, experiment.router.own_module)
    trust = [f"--trust {module}" for module in modules if module is not None]
    query = "--file new.csv"
    if experiment.router.own_module is None and experiment.dataset.own_module is None:
        if experiment.plain["router"].get("reads") is None:
            query = "--image new.png"
        elif (dataset.get("text", "built in") or "text" in (dataset.get("columns") or {})) and not dataset.get(
            "features"
        ):
            query = '--text "a new query"'
    reads = (experiment.plain["router"].get("reads") or {}).get("name")
    kept = ["--keep text"] if reads == "tokens" else []  # no numbers that a server could keep for the next router
    settled = any(map(OWN_METHOD.match, overrides))
    others = method if settled else ",".join(dict.fromkeys([method, "mild", "cost_regression"]))
    swept = [text for text in overrides if not ONE_RUN.match(text) or OWN_METHOD.match(text)]
    own = [] if config_dir is None else ["--config-dir", config_dir]
    again = shlex.join(["l2d", "train", *own, "-m", *swept, f"method={others}", "seed=0,1,2"])
    priced = any(metrics.prices)
    look = "curve" if metrics.capabilities.takes_prices_later and priced else "report"
    commands = {
        LOOKS[look]: f"l2d {look} {shlex.quote(str(folder))}",
        "choose an expert for new inputs": " ".join([f"l2d route {shlex.quote(str(folder))} {query}", *trust]),
        "serve it over HTTP": " ".join([f"l2d serve {shlex.quote(str(folder))}", *kept, *trust]),
        "train it on three seeds" if settled else "compare methods on three seeds": again,
    }
    return "\n".join(["next:", *(f"  # {why}\n  {command}" for why, command in commands.items())])


def main(arguments: list[str]) -> None:
    if "dataset=table" in arguments:
        from l2d.commands.check import guessed_keys

        with answering():
            arguments = [*arguments, *guessed_keys(arguments)]
    run_hydra_command(COMMAND, train_job, arguments)
