"""Composes configs from conf/ and lists its choices."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

import yaml

from l2d.config.identity import quoted

CONF = Path(__file__).resolve().parent.parent / "conf"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if libyaml is installed
ONE_AT_A_TIME = RLock()  # Hydra is one for the whole process, and l2d.fit may run in several threads


def price_scale(error_price: object) -> float:
    """The factor on prices if a wrong answer costs `error_price`. Wrong values are refused when the config is checked."""
    return 1 / error_price if isinstance(error_price, int | float) and error_price > 0 else 1.0


def of_router(key: str, router: str, otherwise: str) -> str:
    """The recipe or method that a router's file asks for (about.recipe, about.method). Hydra refuses an `override` there."""
    file = CONF / "router" / f"{router}.yaml"
    content = yaml.load(file.read_text(encoding="utf-8"), LOADER) if file.is_file() else {}
    for parent in content.get("defaults", []):
        otherwise = of_router(key, parent, otherwise)
    return str(content.get("about", {}).get(key, otherwise))


def register_resolvers() -> None:
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("of_router", of_router, replace=True)
    OmegaConf.register_new_resolver("price_scale", price_scale, replace=True)


def to_plain(config: Any) -> dict[str, Any]:
    """A composed config, resolved, as plain dicts and lists."""
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in plain.items()}


def compose(overrides: Sequence[str] = (), name: str = "train", *, with_hydra: bool = False) -> Any:
    """The config that `l2d train OVERRIDES` would run with."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    from l2d.config.hydra_adapter import read_files_once

    with ONE_AT_A_TIME:
        register_resolvers()
        read_files_once()
        outer = GlobalHydra.instance().hydra  # of the caller's own application, if l2d.fit runs in one
        GlobalHydra.instance().clear()
        try:
            with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
                return hydra.compose(name, overrides=list(overrides), return_hydra_config=with_hydra)
        finally:
            GlobalHydra.instance().hydra = outer


def override_text(value: Any) -> str:
    """A value as an override of Hydra; a text is quoted if it has characters that mean something there."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {override_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(override_text, value)) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[\w ./~+-]+", value, re.ASCII) else quoted(value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def sweep_axes(overrides: Sequence[str]) -> dict[str, str]:
    """The sweep of the experiment among the overrides, as {key: "choice,choice"}; empty without one."""
    experiment = [override for override in overrides if override.startswith("experiment=")]
    sweeper = compose(experiment, with_hydra=True).hydra.sweeper
    return {str(key): str(value) for key, value in (sweeper.params or {}).items()}


def groups() -> dict[str, dict[str, str]]:
    """{group: {choice: its one-line description}}: every file in conf/ begins with one."""
    folders = [folder for folder in sorted(CONF.iterdir()) if folder.is_dir() and folder.name != "hydra"]
    return {folder.name: _descriptions(folder) for folder in folders}


def launchers() -> dict[str, str]:
    """{launcher: its one-line description}: how the runs of a sweep are spread."""
    return _descriptions(CONF / "hydra" / "launcher")


@cache
def titles() -> dict[str, dict[str, str]]:
    """{group: {name: title}}, from about.title in the files of conf/."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(CONF.glob("*/*.yaml")):
        content = yaml.load(file.read_text(encoding="utf-8"), LOADER) or {}
        if isinstance(about := content.get("about"), dict) and "title" in about:
            found.setdefault(file.parent.name, {})[str(content.get("name", file.stem))] = str(about["title"])
    return found


def _descriptions(folder: Path) -> dict[str, str]:
    lines = {file.stem: file.read_text(encoding="utf-8").splitlines() for file in sorted(folder.glob("*.yaml"))}
    first = {name: next(line for line in own if not line.startswith("# @package")) for name, own in lines.items()}
    return {name: line.removeprefix("#").strip() for name, line in first.items()}
