"""The experiment of `l2d.fit`: the defaults of a table and the caller's values, checked. Values are not written as text."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from l2d.config import Experiment, check, compose
from l2d.config.signatures import forget_sources
from l2d.methods.method import Method
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import MISTAKES, one_line

GROUPS = ("setup", "experts", "trainer", "logger", "router", "recipe", "cost", "method")
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
    chosen = {key: value for key, value in options.items() if key in GROUPS and isinstance(value, str)}
    if (experts := chosen.get("experts", "table")) != "table":
        raise ParameterError("experts", "is for l2d train; l2d.fit has arrays of outcomes", experts)
    if search := [key for key in options if key.partition(".")[0] == "tune"]:
        raise ParameterError(search[0], "is for l2d tune")
    choices = {"dataset": "table", "cost": cost["name"]}  # a table has a router, a recipe and a method of its own
    if kind == "images" and "router" not in chosen:
        choices |= {"router": "resnet18_slim", "recipe": "small"}
    if isinstance(method, str):
        choices["method"] = method
    of_caller = not (method is None or isinstance(method, str))
    try:
        config = compose([f"{group}={choice}" for group, choice in (choices | chosen).items()])
        config["dataset"] = ROWS
        if of_caller:
            config["method"] = described("method", method)
        if "prices" in cost:
            config["cost"]["prices"] = cost["prices"]
        open_to_all = ("recipe.optimizer", *(("method",) if of_caller else ()))  # their class has the last word
        for key, value in options.items():
            if key not in chosen:
                new = key.startswith(open_to_all)
                # As a yaml file would have it: NumPy's numbers and arrays, tuples and paths are common in notebooks.
                plain = json.dumps(value, default=lambda one: one.tolist() if hasattr(one, "tolist") else str(one))
                OmegaConf.update(config, key, json.loads(plain), merge=True, force_add=new)
        given = [key for key in options if key.startswith(("recipe.", "router."))]
        if method is None and config["method"]["name"] == "auto" and given:
            raise ParameterError(given[0], "is for a network; name its method too, such as method='mild'")
        return check(config)
    except MISTAKES as error:
        how = ""
        if isinstance(error, ParameterError) and error.problem == "is missing":
            how = f"; give it as options={{{error.parameter!r}: …}}"
        raise L2DError(one_line(error) + how) from error


def described(key: str, found: object) -> dict[str, str]:
    """A class of the caller's own, as the config names it: it is found again by its module and name."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ParameterError(key, "must be a name, or a subclass of l2d.Method", found)
    module, name = found.__module__, found.__qualname__
    if vars(sys.modules.get(module, object)).get(name) is not found:
        raise ParameterError(key, "must be a class at the top level of a module, so that it can be found again", found)
    forget_sources()
    return {"name": name, "_target_": f"{module}.{name}"}
