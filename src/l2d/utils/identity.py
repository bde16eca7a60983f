"""The hashes in folder names: of names and values, never of class paths."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIRECTIVES = ("_target_", "_partial_", "_convert_", "_recursive_")


def without_class_paths(config: Any, key: str = "") -> Any:
    """The same without Hydra's directives and what a component says about itself, at every depth: it is known by its name and
    parameters, so its class may move. Without a name, or as an optimizer that is not l2d's (its name stays that of the recipe), it
    is known by the last part of its class path."""
    if isinstance(config, Mapping):
        left_out = (*DIRECTIVES, "about") if "_target_" in config else DIRECTIVES  # an expert may be called about
        kept = {str(k): without_class_paths(value, str(k)) for k, value in config.items() if k not in left_out}
        target = str(config.get("_target_", ""))
        other = key == "optimizer" and not target.startswith("l2d.")
        by_class = {"_target_": target.rpartition(".")[2]} if target and ("name" not in config or other) else {}
        return kept | by_class
    return [without_class_paths(item) for item in config] if isinstance(config, list | tuple) else config


def identity_hash(content: Any, length: int) -> str:
    """Hexadecimal digits of a hash of plain values. The order of keys does not matter; 5 and 5.0 are the same, not True and 1."""
    text = json.dumps(_numbers_alike(content), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _numbers_alike(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _numbers_alike(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers_alike(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
