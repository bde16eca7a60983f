"""The hashes in folder names: of names and values, never of class paths."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIRECTIVES = ("_target_", "_partial_", "_convert_", "_recursive_")


def without_class_paths(config: Any, key: str = "") -> Any:
    """The same plain values without Hydra's directives, at every depth. A component is known by its `name` and its parameters, so
    its class may move. Without a name it is known by the last part of its class path. So is an optimizer that is not l2d's:
    recipe.optimizer._target_=torch.optim.SGD leaves the recipe's name."""
    if isinstance(config, Mapping):
        kept = {str(k): without_class_paths(value, str(k)) for k, value in config.items() if k not in DIRECTIVES}
        target = str(config.get("_target_", ""))
        other = key == "optimizer" and not target.startswith("l2d.")
        if target and ("name" not in config or other):
            kept["_target_"] = target.rpartition(".")[2]
        return kept
    return [without_class_paths(item) for item in config] if isinstance(config, list | tuple) else config


def identity_hash(content: Any, length: int) -> str:
    """The first `length` hexadecimal digits of a hash of plain values. The order of keys does not matter. 5 and 5.0 are the same;
    True and 1 are not."""
    text = json.dumps(_numbers_alike(content), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _numbers_alike(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _numbers_alike(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers_alike(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
