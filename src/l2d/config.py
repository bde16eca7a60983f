"""The types beneath conf/train.yaml: a misspelt key or a value of the wrong kind fails while the config is composed.

Values are given in the yaml files alone. Groups that name a class (`_target_`) are checked by that class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from l2d.utils.errors import L2DError

CONF = Path(__file__).resolve().parent / "conf"


@dataclass
class Setup:
    name: str = MISSING
    coverage: list[float] | None = MISSING
    experts: list[str] | None = None
    prices: Any = "coverage"


@dataclass
class Cost:
    name: str = MISSING
    prices: Any = MISSING
    scale: float = 1.0
    noise: float = MISSING
    noise_kind: str = MISSING


@dataclass
class Recipe:
    epochs: int = MISSING
    batch_size: int = MISSING
    optimizer: Any = MISSING
    schedule: str = MISSING
    augment: str = MISSING
    precision: str = MISSING
    channels_last: bool = MISSING
    compile: str = MISSING
    fused: bool = MISSING
    ema: float = 0.0
    patience: int | None = None


@dataclass
class Trainer:
    accelerator: str = MISSING
    devices: int = MISSING
    deterministic: bool = MISSING
    data_on_device: str = MISSING


@dataclass
class TrainConfig:
    dataset: Any = MISSING
    setup: Setup = MISSING
    experts: Any = MISSING
    cost: Cost = MISSING
    method: Any = MISSING
    router: Any = MISSING
    recipe: Recipe = MISSING
    trainer: Trainer = MISSING
    logger: Any = MISSING
    seed: int = MISSING
    decision: str = MISSING
    validation_fraction: float = MISSING
    fold: str | None = MISSING
    sampling: str = MISSING
    aux: str = MISSING
    aux_weight: float = MISSING
    checkpoint: str = MISSING
    data_dir: str = MISSING
    runs_dir: str = MISSING
    progress: bool = MISSING
    force: bool = MISSING
    dry_run: bool = MISSING
    stop_after: int | None = MISSING


def recipe_of(router: str, otherwise: str) -> str:
    """The recipe that a router brings along (own_recipe in its file). Not an `override` there: Hydra refuses one in what another
    group takes by interpolation, as experts=trained does with the router."""
    file = CONF / "router" / f"{router}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for parent in content.get("defaults", []):
        otherwise = recipe_of(parent, otherwise)
    return str(content.get("own_recipe", otherwise))


ConfigStore.instance().store(name="schema", node=TrainConfig)
OmegaConf.register_new_resolver("recipe_of", recipe_of, replace=True)


def to_plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved config as plain dicts and lists."""
    config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def check_keys(cfg: DictConfig) -> None:
    """Refuse keys that nothing reads: `+key=value` puts them past the types above."""
    for name, node in {"": TrainConfig, "setup": Setup, "cost": Cost, "recipe": Recipe, "trainer": Trainer}.items():
        known = {field.name for field in fields(node)}
        for key in map(str, cfg[name] if name else cfg):
            if key not in known:
                raise L2DError(f"{f'{name}.{key}' if name else key}: unknown key; there are {', '.join(sorted(known))}")


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The config that `l2d train OVERRIDES` would run with."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("train", overrides=list(overrides))


def sweeper_of(overrides: Sequence[str]) -> DictConfig:
    """What an experiment among the overrides asks of the sweeper (conf/hydra/sweeper/cells.yaml)."""
    experiment = [override for override in overrides if override.startswith("experiment=")]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        found = hydra.compose("train", overrides=experiment, return_hydra_config=True).hydra.sweeper
    assert isinstance(found, DictConfig)
    return found


def sweep_axes(overrides: Sequence[str]) -> dict[str, str]:
    """What an experiment among the overrides sweeps over, as {key: "choice,choice"}."""
    sweeper = sweeper_of(overrides)
    if sweeper.tune.search is not None:
        raise L2DError("experiment: is a search, whose table is result.md in the tune-… folder beside its runs")
    return {str(key): str(value) for key, value in (sweeper.params or {}).items()}


def default_choices() -> dict[str, str]:
    """{group: the choice taken when nothing is said}."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = hydra.compose("train", return_hydra_config=True).hydra.runtime.choices
    return {group: str(chosen[group]) for group in groups() if chosen[group] is not None}


def groups() -> dict[str, dict[str, str]]:
    """{group: {choice: its one-line description}}, read off the files in conf/."""
    return {
        folder.name: {file.stem: _first_comment(file) for file in sorted(folder.glob("*.yaml"))}
        for folder in sorted(CONF.iterdir())
        if folder.is_dir() and folder.name != "hydra"
    }


def launchers() -> dict[str, str]:
    """{launcher: its one-line description}: how the runs of a sweep are spread."""
    return {file.stem: _first_comment(file) for file in sorted((CONF / "hydra" / "launcher").glob("*.yaml"))}


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if not line.startswith("# @package")).removeprefix("#").strip()
