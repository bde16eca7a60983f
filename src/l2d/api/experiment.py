"""The experiment of `l2d.fit`: the defaults of conf/ and the caller's values, checked. Nothing is written as text and parsed."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import DictConfig, OmegaConf

from l2d.config import Experiment, check
from l2d.config.composing import CONF, LOADER, of_router, register_resolvers, to_plain
from l2d.config.signatures import forget_sources
from l2d.methods.method import Method
from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.user_errors import MISTAKES, one_line

# For each kind of input: the router and its recipe, unless the caller names another router.
ROUTERS = {"rows": ("mlp", "table"), "texts": ("mlp", "table"), "images": ("resnet18_slim", "small")}
CHOICES = {"setup": "own", "experts": "table", "trainer": "default", "logger": "csv"}
GROUPS = (*CHOICES, "router", "recipe", "cost", "method")
ROWS = {
    "name": "arrays",
    "_target_": "l2d.data.given.GivenRows",
    "text": None,
    "agree": "exact",
    "encoder": "${oc.select:router.reads,null}",
    "about": {"fast": {"augment": "none", "epochs": 15}, "paper": {"augment": "none"}},
}


def make_experiment(
    kind: str, method: str | type[Method] | None, cost: Mapping[str, Any], options: Mapping[str, Any]
) -> Experiment:
    """kind: of the inputs. cost: its choice, and its prices if there is one per expert. options: by their keys."""
    chosen = {key: str(value) for key, value in options.items() if key in GROUPS and isinstance(value, str)}
    network, recipe = ROUTERS[kind]
    if "router" in chosen:
        recipe = of_router("recipe", chosen["router"], "table")
    choices = {**CHOICES, "router": network, "recipe": recipe, "cost": cost["name"], **chosen}
    if method is None:
        method = of_router("method", choices["router"], "mild")
        if method == "auto" and (given := [key for key in options if key.startswith(("recipe.", "router."))]):
            raise ParameterError(given[0], "is for a network; name its method too, such as method='mild'")
    if isinstance(method, str):
        choices = {"method": method, **choices}
    try:
        register_resolvers()
        config = OmegaConf.create({**read_yaml(CONF / "base.yaml"), "dataset": ROWS})
        for group, choice in choices.items():
            config[group] = read_choice(group, choice)
        if not isinstance(method, str):
            config["method"] = described("method", method)
        if "prices" in cost:
            config["cost"]["prices"] = cost["prices"]
        for key, value in options.items():
            if key not in chosen:
                own = ("recipe.optimizer.", *(() if isinstance(method, str) else ("method.",)))
                set_value(config, key, value, new=key.startswith(own))
        return check(to_plain(config))
    except MISTAKES as error:
        how = ""
        if isinstance(error, ParameterError) and error.problem == "is missing":
            how = f"; give it as options={{{error.parameter!r}: …}}"
        raise L2DError(one_line(error) + how) from error


def read_yaml(file: Path) -> dict[str, Any]:
    """A file of conf/, without what is Hydra's own and without the keys of a search."""
    content: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), LOADER)
    return {key: value for key, value in content.items() if key not in ("defaults", "hydra", "tune")}


def read_choice(group: str, choice: str) -> Any:
    """The values of a choice, after those of the choices that it builds on."""
    file = CONF / group / f"{choice}.yaml"
    if not file.is_file():
        names = sorted(one.stem for one in (CONF / group).glob("*.yaml"))
        raise ParameterError(group, unknown("choice", choice, names), choice)
    parents = yaml.load(file.read_text(encoding="utf-8"), LOADER).get("defaults", [])
    if not all(isinstance(parent, str) for parent in parents):
        raise ParameterError(group, "is for l2d train; l2d.fit has arrays of outcomes", choice)
    return OmegaConf.merge(*(read_choice(group, parent) for parent in parents), read_yaml(file))


def set_value(config: DictConfig, key: str, value: Any, *, new: bool) -> None:
    """Mappings are merged. new: the key may be missing, as arguments of an optimizer or of a class of the caller's own are."""
    place, _, name = key.rpartition(".")
    parent = OmegaConf.select(config, place) if place else config
    known = list(map(str, parent)) if isinstance(parent, DictConfig) else []
    if name not in known and not new:
        raise ParameterError(key, unknown("key", name, known))
    OmegaConf.update(config, key, plain_value(value), merge=True, force_add=True)


def plain_value(value: Any) -> Any:
    """A value as a yaml file would have it: NumPy's numbers and arrays, tuples and paths are common in notebooks."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def described(key: str, found: object) -> dict[str, str]:
    """A class of the caller's own, as the config names it: it is found again by its module and name."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ParameterError(key, "must be a name, or a subclass of l2d.Method", found)
    module, name = found.__module__, found.__qualname__
    if vars(sys.modules.get(module, object)).get(name) is not found:
        raise ParameterError(key, "must be a class at the top level of a module, so that it can be found again", found)
    forget_sources()
    return {"name": name, "_target_": f"{module}.{name}"}
