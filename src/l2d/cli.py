"""What every command shares: help read off conf/, and mistakes answered in one line."""

import os
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from l2d.config import CONF, groups
from l2d.errors import L2DError


def help_text(description: str) -> str:
    """The groups, each choice with the first line of its file, then the keys of train.yaml with theirs."""
    lines = [
        description,
        "",
        "usage: python -m l2d.train [group=choice ...] [key=value ...]",
        "",
        "groups, and their choices:",
    ]
    for group, options in groups().items():
        lines.append(f"  {group}")
        lines += [f"    {choice:<16} {meaning}" for choice, meaning in options.items()]
    text = (CONF / "train.yaml").read_text(encoding="utf-8")
    defaults, keys = text.split("  - _self_\n", 1)
    chosen = [
        line.removeprefix("  - ").replace(": ", "=")
        for line in defaults.splitlines()
        if ": " in line and line.startswith("  - ")
    ]
    lines += ["", f"defaults: {' '.join(chosen)} (a dataset may bring its own router and recipe)", "", "keys:"]
    lines += [f"  {line}" for line in keys.split("\nhydra:", 1)[0].strip().splitlines()]
    lines += [
        "",
        "examples:",
        "  python -m l2d.train setup=I method=tdef method.rho=5.2",
        "  python -m l2d.train -m method=tdef,mild,ce,cwce,ldam seed=0,1     ten runs, one after the other",
        "  python -m l2d.train --cfg job                                     print the composed config, run nothing",
        "  python -m l2d.train --hydra-help                                  Hydra's own flags",
    ]
    return "\n".join(lines)


def run_command(job: Callable[[DictConfig], Any], description: str) -> None:
    """Run a Hydra job. A mistake of the user's ends in one line and status 1; HYDRA_FULL_ERROR=1 shows where it arose."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text(description))
        return

    def guarded(cfg: DictConfig) -> Any:
        try:
            return job(cfg)
        except (L2DError, OSError) as error:
            if full or HydraConfig.get().mode == RunMode.MULTIRUN:
                raise  # Hydra names the job, goes on with the others, and raises this at the end
            sys.exit(f"error: {one_line(error)}")

    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then lets exceptions through instead of printing and exiting
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(guarded)()
    except (L2DError, HydraException, OmegaConfBaseException, OSError) as error:
        if full:
            raise
        sys.exit(f"error: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """The message on one line. Hydra puts the key into one exception and the reason into its cause: both are wanted."""
    parts = [" ".join(str(error).split())]
    cause = error.__cause__
    if isinstance(error, HydraException) and cause is not None:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        if reason not in parts[0]:
            parts.append(reason)
    return ": ".join(parts)
