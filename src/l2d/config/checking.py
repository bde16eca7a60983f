"""The one place where a config is checked: it becomes an Experiment, or an error of one line that names the key."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, get_type_hints

from l2d.config.composing import to_plain
from l2d.config.schema import Component, Experiment, Recipe, SearchSettings, Settings, Setup, Trainer
from l2d.config.signatures import Parameter, check_arguments, find_class, may_exist, read_signature
from l2d.utils.errors import ParameterError, under, unknown
from l2d.utils.identity import DIRECTIVES
from l2d.utils.own_modules import defined_in_memory
from l2d.utils.parameters import NonNegative, Positive

COMPONENTS = ("dataset", "experts", "cost", "method", "router", "logger")
FORMER = ("aux", "aux_weight")  # keys of earlier versions
# Keys of a component that are not passed to its class, unless it has a parameter of that name. reads: used by the dataset.
METADATA = ("name", "about", "reads")
# Arguments that the run adds to a component, by the last part of its key.
ADDED = {
    "method": ("costs", "num_classes", "decision", "largest_cost", "mean_costs"),
    **dict.fromkeys(("router", "network"), ("mean", "std", "num_outputs", "head")),
    "logger": ("info",),
    "optimizer": ("params",),
}
# Classes that a config from a file may name: those of these rooms, the log, and our own optimizer.
ROOMS = r"(costs|data|experts|methods|networks|runs)\.[\w.]+"
OWN_CLASSES = re.compile(rf"l2d\.({ROOMS}|logs\.dataset\.ServerLog|lightning\.muon\.Muon)")
# Modules that run folders of earlier versions know by another name.
MOVED = {
    "l2d.learning.muon": "l2d.lightning.muon",
    "l2d.serving.server.log_dataset": "l2d.logs.dataset",
    "l2d.costs.error": "l2d.costs.cost",
    "l2d.experts.table": "l2d.experts.request",
    **dict.fromkeys(("l2d.costs.price_list", "l2d.costs.price_columns"), "l2d.costs.prices"),
    **dict.fromkeys(
        (f"l2d.methods.{name}" for name in ("focal", "ldam", "logit_adjustment")), "l2d.methods.cross_entropy"
    ),
}
OPTIMIZERS = re.compile(r"torch\.optim\.[A-Z]\w*")
OPTIMIZER_KINDS = {"lr": Positive, "weight_decay": NonNegative}
T = TypeVar("T")


def check(config: Any, trust: Sequence[str] | None = None) -> Experiment:
    """config: as composed, or from a run's config.yaml. trust: modules whose classes may be built; None if the user composed it."""
    given = config if isinstance(config, dict) else to_plain(config)
    plain = normalised({key: value for key, value in given.items() if key not in FORMER})
    known = {*COMPONENTS, "setup", "recipe", "trainer", *(field.name for field in fields(Settings))}
    for key in sorted(known ^ plain.keys()):
        raise ParameterError(key, "is missing" if key in known else unknown("key", key, sorted(known)))
    # First: the dataset takes its value from here, and errors should name this key.
    if isinstance(router := plain["router"], Mapping) and router.get("reads") is not None:
        read_component("router.reads", router["reads"], trust)
    components: dict[str, Any] = {key: read_component(key, plain[key], trust) for key in COMPONENTS}
    components["dataset"] = with_trusted_rule(components["dataset"], trust)
    experiment = Experiment(
        **components,
        setup=read_values(Setup, "setup", plain["setup"]),
        recipe=read_recipe("recipe", plain["recipe"], trust),
        trainer=read_values(Trainer, "trainer", plain["trainer"]),
        settings=read_values(Settings, "", {field.name: plain[field.name] for field in fields(Settings)}),
        plain=plain,
    )
    check_together(experiment)
    return experiment


def normalised(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys of a search and of earlier versions; bools or words as lower-case words, also within experts."""
    found = {key: value for key, value in plain.items() if key not in ("tune", "stop_after")}
    for group, key in (("recipe", "compile"), ("trainer", "data_on_device")):
        if isinstance(values := found.get(group), Mapping) and key in values:
            found[group] = {**values, key: str(values[key]).lower()}
    if isinstance(recipe := found.get("recipe"), Mapping):
        found["recipe"] = {key: value for key, value in recipe.items() if key != "ema"}  # of earlier versions
    if isinstance(cost := found.get("cost"), Mapping) and isinstance(prices := cost.get("prices"), Mapping):
        found["cost"] = {**cost, "prices": {str(name): price for name, price in prices.items()}}  # 2024 may be a name
    for group in ("experts", "machine"):
        if isinstance(values := found.get(group), Mapping):
            found[group] = normalised(values)
    return found


def read_values(kind: type[T], key: str, values: Any) -> T:
    hints = get_type_hints(kind, include_extras=True)
    with under(key):
        if not isinstance(values, Mapping):
            raise ParameterError("", "must be a mapping", values)
        for name in hints.keys() - values.keys():
            raise ParameterError(name, "is missing")
        check_arguments(values, {name: Parameter(hint, required=True) for name, hint in hints.items()})
    return kind(**values)


def read_recipe(key: str, values: Any, trust: Sequence[str] | None) -> Recipe:
    if not isinstance(values, Mapping):
        raise ParameterError(key, "must be a mapping", values)
    plain = normalised({"recipe": values})["recipe"]
    optimizer = read_component(f"{key}.optimizer", plain.get("optimizer"), trust, partial=True)
    return read_values(Recipe, key, {**plain, "optimizer": optimizer})


def read_component(key: str, node: Any, trust: Sequence[str] | None, *, partial: bool = False) -> Component:
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise ParameterError(key, "must be a mapping that names a class, _target_: MODULE.CLASS", node)
    module, _, name = node["_target_"].rpartition(".")
    target = f"{MOVED.get(module, module)}.{name}".removeprefix(".")
    trusted = is_trusted(target, trust)
    if trusted and not may_exist(target):
        raise ParameterError(f"{key}._target_", "no such class", target)
    signature = _configurable(key, target) if trusted else None
    arguments = {
        name: _nested(f"{key}.{name}", value, trust, (signature or {}).get(name))
        for name, value in node.items()
        if name not in DIRECTIVES and (name not in METADATA or name in (signature or {}))
    }
    if signature is not None:
        with under(key):
            # The values as written, so that a class is refused where a number belongs.
            callables = {n for n, one in arguments.items() if isinstance(one, Component) and one.partial}
            check_arguments({n: Component if n in callables else node[n] for n in arguments}, signature)
            for name, one in signature.items():
                if one.required and name not in arguments and not partial:
                    raise ParameterError(name, "is missing")
    return Component(key, str(node.get("name", "")), target, arguments, partial or bool(node.get("_partial_")), trusted)


def _configurable(key: str, target: str) -> dict[str, Parameter] | None:
    """The parameters of a class that the config may set; None if they cannot be read."""
    if (signature := read_signature(target)) is None:
        return None
    found = {name: one for name, one in signature.items() if name not in ADDED.get(key.rpartition(".")[2], ())}
    if OPTIMIZERS.fullmatch(target):  # their annotations do not fit values from a file: a list is not a tuple
        return {name: Parameter(OPTIMIZER_KINDS.get(name, Any), one.required) for name, one in found.items()}
    return found


def _nested(key: str, value: Any, trust: Sequence[str] | None, parameter: Parameter | None = None) -> Any:
    if parameter is not None and parameter.kind is Recipe:
        return read_recipe(key, value, trust)
    if isinstance(value, Mapping) and "_target_" in value:
        return read_component(key, value, trust, partial=bool(value.get("_partial_")))
    if isinstance(value, Mapping):
        return {name: _nested(f"{key}.{name}", one, trust) for name, one in value.items()}
    if isinstance(value, list):
        return [_nested(f"{key}[{place}]", one, trust) for place, one in enumerate(value, start=1)]
    return value


def is_trusted(target: str, trust: Sequence[str] | None) -> bool:
    """True if a class may be imported and built: one of l2d's, an optimizer of torch, or one of a module that the user named."""
    if trust is None or OPTIMIZERS.fullmatch(target):
        return True
    if OWN_CLASSES.fullmatch(target):
        return find_class(target) is not None
    # A class that a trusted module merely imports is not trusted.
    trusted = any(target.startswith(f"{module}.") for module in trust)
    return trusted and (find_class(target) is not None or defined_in_memory(target))


def with_trusted_rule(dataset: Component, trust: Sequence[str] | None) -> Component:
    """A function of the user's own that says which answers agree counts as a class: it is imported only from a trusted module."""
    rule: Any = dataset.arguments.get("agree")
    own = isinstance(rule, str) and "." in rule and ":" not in rule
    if trust is None or not own or any(rule.startswith(f"{module}.") for module in trust):
        return dataset
    refused = Component("dataset.agree", "", rule, {}, trusted=False)
    return replace(dataset, arguments={**dataset.arguments, "agree": refused})


def check_together(experiment: Experiment) -> None:
    settings, recipe, coverage = experiment.settings, experiment.recipe, experiment.setup.coverage
    if coverage is not None and abs(sum(coverage) - 1) > 1e-6:
        raise ParameterError("setup.coverage", f"the shares must sum to 1, not {sum(coverage):g}", coverage)
    own_number = "people" in experiment.experts.arguments or experiment.experts.own_module is not None
    if coverage is not None and len(coverage) == 1 and not own_number:
        raise ParameterError("setup.coverage", "1 expert; routing needs at least 2", coverage)
    if settings.fold is not None:
        found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", settings.fold)
        if found is None or not int(found[1]) <= int(found[2]) >= 2:
            raise ParameterError("fold", "must look like 2/5, the second of five folds", settings.fold)
        if settings.evaluation == "cross_validate":
            raise ParameterError("evaluation", "has folds of its own; remove fold, or use holdout", settings.evaluation)
    if recipe.patience is not None and settings.checkpoint == "last":
        raise ParameterError("recipe.patience", "needs checkpoint=best or checkpoint=best_loss", recipe.patience)
    router = experiment.plain["router"]
    reads = router.get("reads") if isinstance(router, Mapping) else None
    if isinstance(reads, Mapping) and "model" in router and reads.get("model") != router["model"]:
        raise ParameterError("router.reads.model", f"must be router.model={router['model']}", reads.get("model"))


# Keys that a search sets itself, and the option that says how.
SET_BY_SEARCH = {"seed": "tune.seeds and tune.final_seeds", "fold": "tune.folds"}


def check_search(values: Any) -> SearchSettings:
    options = read_values(SearchSettings, "tune", values if isinstance(values, dict) else to_plain(values))
    if options.values and {*SET_BY_SEARCH} & {*options.values}:
        raise ParameterError("tune.values", f"a search sets {' and '.join(SET_BY_SEARCH)} itself", options.values)
    if options.offsets and options.values:
        raise ParameterError("tune.offsets", "is for a search without tune.values", options.offsets)
    return options
