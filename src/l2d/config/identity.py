"""A run's identity: its groups' names, a hash of all values that can change its result, its seed. No class paths."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from l2d.utils.errors import ParameterError
from l2d.utils.identity import identity_hash, without_class_paths

# Raise it when a change of code changes the result of the same config, so that old runs are not reused.
RESULTS_VERSION = 7
NAMED = ("dataset", "setup", "experts", "cost", "method")
# Keys that cannot change a result.
IRRELEVANT = ("logger", "data_dir", "runs_dir", "progress", "force", "dry_run", "stop_after")  # the last: formerly
# The same within groups. setup.prices: in cost.prices if they are used. cost.error_price: in cost.scale. experts.table: only
# written. dataset.path: data.txt identifies the content of the file, so the file may move.
IRRELEVANT_IN = {"setup": ("prices",), "cost": ("error_price",), "experts": ("table",), "dataset": ("path",)}
# Models that may be folders; the path to the folder does not matter.
MODELS = ("experts.models", "router.model", "router.reads.model", "dataset.encoder.model")
# Keys that hold paths. Workers get absolute ones, since they may start in another folder. dataset.encoder follows router.reads.
PLACES = ("runs_dir", "data_dir", "dataset.path", "experts.table", *MODELS[:3])


def variant(config: Mapping[str, Any]) -> str:
    """A short hash of everything in the resolved config that can change the result, except the seed."""
    return identity_hash([RESULTS_VERSION, _with_former({"aux": "none", **relevant(config)}, True)], 8)


def relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that can change the result, without class paths and the locations of files."""
    config, former = _with_former(config, False), (("aux", "none", "aux"), ("aux", "none", "aux_weight"))
    pairs = (*former, ("evaluation", "holdout", "evaluation"), ("missing", "direct", "missing"))
    left_out = (*IRRELEVANT, "seed", "tune", *(unused for key, value, unused in pairs if config.get(key) == value))
    kept = {key: value for key, value in config.items() if key not in left_out}
    unset = [("dataset", key, None) for key in ("split_by", "columns", "merge")]
    for group, key, usual in (*unset, ("dataset", "agree", "exact"), ("cost", "latency_price", 0.0)):
        if isinstance(values := kept.get(group), Mapping) and values.get(key, usual) == usual:
            kept[group] = {name: value for name, value in values.items() if name != key}
    for group, keys in IRRELEVANT_IN.items():
        if isinstance(values := kept.get(group), Mapping):
            kept[group] = {key: value for key, value in values.items() if key not in keys}
    return _placeless(without_class_paths(kept))


def _with_former(config: Mapping[str, Any], present: bool) -> dict[str, Any]:
    """With a key of earlier versions at its default, so that folders and experts keep their names; or without it."""
    found = dict(config)
    for group in ("experts", "machine"):
        if isinstance(values := found.get(group), Mapping):
            found[group] = _with_former(values, present)
    if isinstance(recipe := found.get("recipe"), Mapping):
        kept = {name: value for name, value in recipe.items() if (name, value) != ("ema", 0.0)}
        found["recipe"] = {"ema": 0.0, **kept} if present else kept
    return found


def _placeless(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Replace MODELS that are folders by the folder's name; data.txt identifies their content."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found[key] = _placeless(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" in MODELS and value is not None:
            whole = _listed(absolute(f"{prefix}{key}", value))
            names = [Path(str(one)).name if str(one).startswith("/") else str(one) for one in whole]
            found[key] = names if isinstance(value, list) else names[0]
        else:
            found[key] = value
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def absolute(key: str, value: Any) -> Any:
    """A path, or several, made absolute. A URL is unchanged, and a model's name unless there is such a folder."""
    if value is None or "://" in str(value):
        return value
    if isinstance(value, list):
        return [absolute(key, one) for one in value]
    path = Path(str(value)).expanduser()
    named = key.rpartition(".")[2] in ("model", "models") and (value == "minilm" or not path.is_dir())
    return value if named else str(path.absolute())


def quoted(text: str) -> str:
    """Quoted for an override of Hydra, whatever characters it has."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def places(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides that set the PLACES of this config to absolute paths."""
    flat = _flat(config)
    overrides = []
    for key in PLACES:
        if (value := flat.get(key)) is not None:
            words = ",".join(quoted(str(one)) for one in _listed(absolute(key, value)))
            overrides.append(f"{key}=[{words}]" if isinstance(value, list) else f"{key}={words}")
    return tuple(overrides)


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a config that can change the result, except the seed, flat: {"recipe.epochs": 3, …}."""
    return _flat(relevant(config))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The values in which each of several settings differs from the others, as "key=value key=value"."""
    keys = sorted({key for one in settings for key in one})
    differ = [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]
    said = [{key.removeprefix("method."): one[key] for key in differ if one.get(key) is not None} for one in settings]
    return [" ".join(f"{key}={value}" for key, value in one.items()) for one in said]


def choices(config: Mapping[str, Any]) -> dict[str, str]:
    names = {group: str(config[group].get("name", "")) for group in NAMED}
    for group, name in names.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ParameterError(f"{group}.name", "names a folder; use letters, digits, '_', '-' and '.' only", name)
    return names


def cell_path(config: Mapping[str, Any]) -> str:
    """The run's folder under runs_dir, without its seed."""
    return "/".join([*choices(config).values(), variant(config)])


def expert_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the config that determines the experts' predictions."""
    plain = without_class_paths({group: _with_former(config, True)[group] for group in ("dataset", "experts")})
    options = {key: value for key, value in plain["dataset"].items() if key not in ("path", "name", "agree")}
    return {"dataset": plain["dataset"]["name"], "options": options, "experts": plain["experts"]}
