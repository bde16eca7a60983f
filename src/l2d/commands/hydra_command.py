"""The shared part of the commands on Hydra: help from conf/ and the schema, and mistakes answered in one line."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from l2d.config import CONF, SearchSettings, Settings, compose, groups, launchers
from l2d.config.composing import override_text, register_resolvers
from l2d.config.identity import PLACES
from l2d.runs.sweep import mark_started, printed, write_error
from l2d.utils.errors import Busy
from l2d.utils.own_modules import look_in
from l2d.utils.user_errors import MISTAKES, TERMINATED, answering, is_mistake, one_line

# Exit statuses of a run that was ended from outside: by SIGTERM, or by submitit, which starts it again.
FROM_OUTSIDE = (TERMINATED, -1)


@dataclass(frozen=True)
class HydraCommand:
    """name: `l2d NAME`, whose primary config is conf/CONFIG.yaml."""

    name: str
    config: str
    description: str
    examples: Sequence[str]


def help_text(command: HydraCommand) -> str:
    """The groups, each choice with the first line of its file, then the keys with their meaning."""
    defaults = compose(name=command.config, with_hydra=True)
    known, made = groups(), defaults.hydra.runtime.choices
    chosen = {group: made[group] for group in known if group in made}
    usage = f"usage: l2d {command.name} [group=choice ...] [key=value ...]"
    lines = [command.description, "", usage, "", "groups, and their choices:"]
    listed = {f"  {group}": options for group, options in known.items() if group in chosen}
    listed["\nhydra/launcher, how the runs of a sweep are spread (docs/scaling.md):"] = launchers()
    for group, options in listed.items():
        lines += [group, *(f"    {choice:<17} {meaning}" for choice, meaning in options.items())]
    chosen_by_default = " ".join(f"{group}={choice}" for group, choice in chosen.items() if choice is not None)
    for_data = "image sets: router=resnet18 recipe=fast; tables: router=mlp recipe=table"
    lines += ["", f"defaults: {chosen_by_default} ({for_data})", "", "keys:", *key_lines(Settings, defaults)]
    if command.name == "tune":
        lines += ["", "keys of the search:", *key_lines(SearchSettings, defaults.tune, "tune.")]
    lines += ["", "examples:", *(f"  {line}" for line in command.examples), "", "(flags such as -m come first)"]
    lines += [
        f"  l2d {command.name} --cfg job                     print the composed config and run nothing",
        f"  l2d {command.name} --config-dir my_conf ...      use your own yaml files too (docs/extending.md)",
        f"  l2d {command.name} --hydra-help                  Hydra's own flags",
        f"  HYDRA_FULL_ERROR=1 l2d {command.name} ...        show where an error arose",
    ]
    return "\n".join(lines)


def key_lines(kind: type, defaults: Any, prefix: str = "") -> list[str]:
    keys = {field.name: f"{prefix}{field.name}={override_text(defaults[field.name])}" for field in fields(kind)}
    width = max(map(len, keys.values()))
    return [f"  {keys[field.name]:<{width}}  {field.metadata['help']}" for field in fields(kind)]


class HydraJob:
    """A job that leaves its mistakes where a sweep looks for them. A class, not a closure: launchers send it to other processes."""

    def __init__(self, job: Callable[[Any], Any], full: bool, modules: str | None = None) -> None:
        self.job, self.full, self.modules = job, full, modules  # the last: a folder of the user's own

    def __call__(self, cfg: Any) -> Any:
        from hydra.core.hydra_config import HydraConfig

        from l2d.config.hydra_adapter import in_a_sweep

        if self.modules is not None:
            look_in(self.modules)
        hydra = HydraConfig.get()
        if not in_a_sweep() or hydra.runtime.choices["hydra/sweeper"] != "cells":
            try:
                return self.job(cfg)
            except MISTAKES as error:
                if self.full or in_a_sweep() or not is_mistake(error):
                    raise
                sys.exit(f"error: {one_line(error)}")  # here: Hydra would print more than that line
        folder, number = Path(hydra.sweep.dir), hydra.job.num
        started = mark_started(folder, number)
        try:
            return self.job(cfg)
        except Busy:
            started.unlink(missing_ok=True)
            return None  # whoever holds it will finish it; the sweep looks again at the end
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and error.code in FROM_OUTSIDE:
                raise
            # The sweep goes on with its other runs and lists this one at the end.
            reason = one_line(error) if is_mistake(error) else f"{type(error).__name__}: {one_line(error)}"
            own = (text for text in hydra.overrides.task if text.split("=")[0] not in PLACES)
            print(f"error: {' '.join(own)}: {'the same' if reason in printed else reason}", file=sys.stderr)
            printed.add(reason)
            write_error(folder, number, f"{reason}\n\n{traceback.format_exc()}")
            return None


def run_hydra_command(
    command: HydraCommand, job: Callable[[Any], Any], arguments: Sequence[str], *, multirun: bool = False
) -> None:
    with answering("\ninterrupted; the same command goes on"):
        if {"-h", "--help"} & set(arguments):
            print(help_text(command))
            return
        full = os.environ.get("HYDRA_FULL_ERROR") == "1"
        from l2d.config.hydra_adapter import run_job

        register_resolvers()
        own = str(Path.cwd()) if any(argument.startswith(("--config-dir", "-cd")) for argument in arguments) else None
        if own is not None:
            look_in(own)
        try:
            run_job(HydraJob(job, full, own), str(CONF), command.config, arguments, multirun=multirun)
        except SystemExit as left:
            if left.code == TERMINATED:
                print("\nterminated; the same command goes on", file=sys.stderr)
            raise
