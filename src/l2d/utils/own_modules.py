"""Finds the user's own modules, in the folder where a command is run, without importing them."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def look_in(folder: str) -> None:
    """Search this folder for modules too, after all others."""
    if folder not in sys.path:
        sys.path.append(folder)


def spec_of(module: str) -> ModuleSpec | None:
    """The spec of a module, or None. importlib.util.find_spec alone would import its parent packages."""
    first, *others = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # an empty name, or __main__
        return None
    for name in others:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # By its short name: for the full name, Python looks up the packages around it among the imported ones.
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def defined_in_memory(target: str) -> bool:
    """True if MODULE.CLASS is a class of a module that is imported already. A notebook's classes have no file."""
    module, _, name = target.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and found.__module__ == module


def changed_since(modules: set[str], moment: float) -> list[Path]:
    specs = map(spec_of, sorted(modules))
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [file for file in files if file.exists() and file.stat().st_mtime > moment]
