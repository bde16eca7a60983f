"""What every command shares: help read off conf/, and mistakes answered in one line."""

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from l2d.config import CONF, default_choices, groups
from l2d.errors import L2DError

MISTAKES = (L2DError, HydraException, OmegaConfBaseException, OSError)


def help_text(description: str, module: str = "l2d.train") -> str:
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
    keys = (CONF / "train.yaml").read_text(encoding="utf-8").split("  - _self_\n", 1)[1]
    chosen = " ".join(f"{group}={choice}" for group, choice in default_choices().items())
    lines += ["", f"defaults: {chosen} (other datasets: router=resnet18 recipe=fast)", "", "keys:"]
    lines += [f"  {line}" for line in keys.split("\nhydra:", 1)[0].strip().splitlines()]
    lines += [
        "",
        "examples:",
        "  python -m l2d.train setup=I method=tdef method.rho=5.2",
        "  python -m l2d.train -m method=tdef,mild,ce,cwce,ldam seed=0,1     ten runs, one after the other",
        "  (flags such as -m come first)",
        "  python -m l2d.train --cfg job                                     print the composed config, run nothing",
        "  python -m l2d.train --hydra-help                                  Hydra's own flags",
    ]
    return "\n".join(lines)


def run_command(job: Callable[[DictConfig], Any], description: str, module: str = "l2d.train") -> None:
    """Run a Hydra job. A mistake of the user's ends in one line and status 1; HYDRA_FULL_ERROR=1 shows where it arose."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text(description, module))
        return
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then lets exceptions through instead of printing and exiting
    failed = 0

    def guarded(cfg: DictConfig) -> Any:
        nonlocal failed
        try:
            return job(cfg)
        except MISTAKES as error:
            if full:
                raise
            if HydraConfig.get().mode != RunMode.MULTIRUN:
                sys.exit(f"error: {one_line(error)}")
            failed += 1
            print(f"error: {' '.join(HydraConfig.get().overrides.task)}: {one_line(error)}", file=sys.stderr)
            raise  # Hydra goes on with the other runs and raises this at the end

    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")(guarded)()
    except MISTAKES as error:
        if full:
            raise
        sys.exit(f"error: {failed} of the runs failed, see above" if failed else f"error: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on after the last epoch that was saved")


def one_line(error: BaseException) -> str:
    """The message on one line. Hydra puts the key into one exception and the reason into its cause: both are wanted."""
    text = re.sub(r"To append to your config use \S+|Config search path:.*", "", " ".join(str(error).split()))
    parts = [text.strip()]
    cause = error.__cause__
    if isinstance(error, HydraException) and cause is not None:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        if reason not in parts[0]:
            parts.append(reason)
    return ": ".join(parts)
