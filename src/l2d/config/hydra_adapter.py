"""Hydra as this project uses it. The only file that touches Hydra's private API, so fixes for a new release of Hydra go here."""

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from hydra import version
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

from l2d.utils.errors import L2DError


def run_job(
    job: Callable[[DictConfig], Any], conf: str, config_name: str, arguments: Sequence[str], *, multirun: bool = False
) -> None:
    """Like @hydra.main, but with given arguments, and exceptions propagate. multirun: as if with -m."""
    version.setbase("1.3")
    read_files_once()
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    # A shell leaves ~ as it is after =, and Hydra cannot read it.
    options = parser.parse_args([argument.replace("=~/", f"={Path.home()}/", 1) for argument in arguments])
    asks_hydra = options.cfg or options.info or options.help or options.hydra_help or options.shell_completion
    options.multirun = (options.multirun or multirun) and not asks_hydra
    for file in sorted(Path(options.config_dir).glob("*/*.yaml")) if options.config_dir is not None else ():
        group, name = file.parent.name, file.stem
        if (Path(conf) / group / file.name).exists():  # Hydra would silently take it
            raise L2DError(f"{file}: {group}={name} is l2d's own; give the file and its `name` another name")
    single = [] if options.multirun or asks_hydra else OverridesParser.create().parse_overrides(options.overrides)
    if several := [one.input_line for one in single if one.is_sweep_override()]:  # Hydra would offer three ways out
        raise L2DError(f"{several[0]}: several values are a sweep; put -m before them")
    before = os.environ.get("HYDRA_FULL_ERROR", "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints exceptions and exits
    try:
        _run_hydra(options, parser, job, conf, config_name)
    finally:
        os.environ["HYDRA_FULL_ERROR"] = before


def _refuse(message: str) -> NoReturn:
    """argparse would print its usage too."""
    raise L2DError(message)


def split_grid(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[list[str]]:
    """Every combination of the choices in the overrides: ["seed=0,1"] is [["seed=0"], ["seed=1"]]."""
    parser = OverridesParser.create(config_loader=loader) if loader is not None else OverridesParser.create()
    choices: dict[str, list[str]] = {}
    for override in parser.parse_overrides(list(overrides)):
        key, several = override.get_key_element(), override.is_sweep_override()
        values = override.sweep_string_iterator() if several else [override.get_value_element_as_str()]
        choices[key] = [key if override.value_type is None else f"{key}={value}" for value in values]  # ~key has none
    return [list(combination) for combination in product(*choices.values())]


def in_a_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def chosen_experiment() -> str | None:
    found = HydraConfig.get().runtime.choices.get("experiment")
    return None if found is None else str(found)


@cache
def read_files_once() -> None:
    """Parse each config file once: a sweep composes hundreds of configs from the same few files."""
    read, known = ConfigRepository.load_config, dict[Any, Any]()

    def load_config(self: ConfigRepository, config_path: str) -> Any:
        key = (*(source.path for source in self.get_sources()), config_path)
        if key not in known:
            known[key] = read(self, config_path)
        return deepcopy(known[key])  # Hydra reuses these nodes in the composed config

    ConfigRepository.load_config = load_config  # type: ignore[method-assign]
