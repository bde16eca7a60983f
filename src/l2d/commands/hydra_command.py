"""What every command shares: help read off conf/, and mistakes answered in one line."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from l2d.config import CONF, default_choices, groups, launchers
from l2d.runs.cells import PLACES
from l2d.runs.sweep import write_error
from l2d.utils import interrupts
from l2d.utils.errors import Busy
from l2d.utils.user_errors import MISTAKES, answering, one_line

RESUMES = {
    "l2d.commands.train": "goes on after the last epoch that was saved, if any was",
    "l2d.tuning.study": "goes on where it was: finished trials are not repeated",
}
EXAMPLES = {
    "l2d.commands.train": [
        "l2d train setup=I method=tdef method.rho=5.2",
        "l2d train experts=trained experts.cross_fit=5         experts that are trained first, if they are not there",
        "l2d train dataset=table dataset.path=my.csv           your own table: docs/your_table.md",
        "l2d train -m method=tdef,mild,ce,cwce,ldam seed=0,1   ten runs, one after the other",
        "l2d train -m experiment=table1_error dataset=svhn dry_run=true   what a table needs, and what is left",
        "l2d report runs                                       tables and plots of what is finished",
        "l2d train -m experiment=price_curve dataset=mmlu_sim   prices times 0 … 2; l2d curve runs draws it",
    ],
    "l2d.tuning.study": [
        "l2d tune dataset=svhn setup=III                        the paper's grid for MILD: theory ρ plus 0, 1, …, 5",
        "l2d tune method=tdef                                   TDEF's temperature, over the same sizes of ρ",
        "l2d tune tune.search=optuna tune.recipe=true tune.trials=60",
        "l2d tune dataset=svhn,cifar10 method=mild,tdef         each combination is searched by itself",
        "l2d tune method=ldam tune.values='{method.max_margin: [0.1, 0.3, 0.5], method.scale: [10, 30]}'",
        "l2d train -m experiment=rho_ablation dataset=svhn      uniform, theory and tuned ρ, with the controls",
    ],
    "l2d.experts": [
        "l2d experts dataset=cifar10 setup=I",
        "l2d experts setup=III experts.fraction=0.05 experts.cross_fit=5 experts.recipe.epochs=30",
        "l2d experts -m setup=I,II,III,severe",
        "l2d experts setup=III force=true      anew, although they are there",
    ],
    "l2d.data.prepare": ["l2d prepare dataset=svhn data_dir=data"],
}


def help_text(description: str, module: str = "l2d.commands.train") -> str:
    """The groups, each choice with the first line of its file, then the keys of train.yaml with theirs."""
    lines = [
        description,
        "",
        f"usage: python -m {module} [group=choice ...] [key=value ...]",
        "",
        "groups, and their choices:",
    ]
    for group, options in groups().items():
        lines.append(f"  {group}")
        lines += [f"    {choice:<16} {meaning}" for choice, meaning in options.items()]
    lines += ["", "hydra/launcher, how the runs of a sweep are spread (docs/scaling.md):"]
    lines += [f"    {choice:<16} {meaning}" for choice, meaning in launchers().items()]
    keys = (CONF / "train.yaml").read_text(encoding="utf-8").split("\n\n", 1)[1]
    defaults = default_choices() | ({"experts": "trained"} if module == "l2d.experts" else {})
    chosen = " ".join(f"{group}={choice}" for group, choice in defaults.items())
    lines += [
        "",
        f"defaults: {chosen} (image sets: router=resnet18 recipe=fast; tables: router=mlp recipe=table)",
        "",
        "keys:",
    ]
    lines += [f"  {line}" for line in keys.split("\nhydra:", 1)[0].strip().splitlines()]
    if module == "l2d.tuning.study":
        tune = (CONF / "hydra" / "sweeper" / "cells.yaml").read_text(encoding="utf-8").split("\ntune:\n", 1)[1]
        lines += ["", "keys of the search:"]
        lines += [f"  tune.{line.strip()}" for line in tune.splitlines()]
    lines += ["", "examples:", *(f"  {line}" for line in EXAMPLES.get(module, EXAMPLES["l2d.commands.train"]))]
    lines += [
        "  (flags such as -m come first)",
        f"  python -m {module} --cfg job              print the composed config, with every key of the groups, and run nothing",
        f"  python -m {module} --hydra-help           Hydra's own flags",
    ]
    return "\n".join(lines)


class Guard:
    """A Hydra job whose mistakes end in one line. A class, not a closure: launchers send it to other processes."""

    def __init__(self, job: Callable[[DictConfig], Any], full: bool) -> None:
        self.job, self.full = job, full

    def __call__(self, cfg: DictConfig) -> Any:
        hydra_cfg = HydraConfig.get()
        if hydra_cfg.mode != RunMode.MULTIRUN or not hydra_cfg.sweeper._target_.endswith("CellSweeper"):
            try:
                return self.job(cfg)
            except MISTAKES as error:
                if self.full or hydra_cfg.mode == RunMode.MULTIRUN:
                    raise
                sys.exit(f"error: {one_line(error)}")  # here: Hydra would print more than that line
        folder, number = Path(hydra_cfg.sweep.dir), hydra_cfg.job.num
        started = folder / f"{number}.started"
        with suppress(OSError):  # a full disk will show itself soon enough
            started.touch()
        try:
            result = self.job(cfg)
            interrupts.check()
            return result
        except Busy:
            started.unlink(missing_ok=True)
            return None  # whoever holds it will finish it; the sweep looks again at the end
        except Exception as error:
            # The sweep goes on with its other runs and lists this one at the end.
            reason = one_line(error) if isinstance(error, MISTAKES) else f"{type(error).__name__}: {one_line(error)}"
            said = [text for text in hydra_cfg.overrides.task if text.split("=")[0] not in PLACES]
            print(f"error: {' '.join(said)}: {reason}", file=sys.stderr)
            if self.full:
                traceback.print_exc()
            write_error(folder, number, f"{reason}\n\n{traceback.format_exc()}")
            return None


def run_command(job: Callable[[DictConfig], Any], description: str, module: str = "l2d.commands.train") -> None:
    """Run a Hydra job. A mistake of the user's ends in one line and status 1; HYDRA_FULL_ERROR=1 shows where it arose."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        with answering():
            print(help_text(description, module))
        return
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then lets exceptions through instead of printing and exiting
    if module not in ("l2d.commands.train", "l2d.tuning.study"):
        for text in sys.argv[1:]:
            if text.startswith("experiment="):
                sys.exit(f"error: {text}: is a sweep of l2d.commands.train")
        sys.argv.append("hydra/sweeper=basic")  # l2d's own goes by the run folders of l2d.commands.train
    # On the command line the keys of a search, which are the sweeper's, are called tune.KEY.
    sys.argv[1:] = [f"hydra.sweeper.{text}" if text.startswith("tune.") else text for text in sys.argv[1:]]
    interrupts.remember()
    how = f"the same command {RESUMES.get(module, 'begins anew')}"
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(Guard(job, full))()
    except MISTAKES as error:
        if full:
            raise
        sys.exit(f"error: {one_line(error)}")
    except SystemExit as left:
        if left.code == interrupts.TERMINATED:
            print(f"\nterminated; {how}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        interrupts.say_at_the_end(f"\ninterrupted; {how}")
        raise
