"""Modules of the user's own, which lie in the folder that a command is typed in. Found, not imported."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def look_in(folder: str) -> None:
    """Find modules there too, after all others."""
    if folder not in sys.path:
        sys.path.append(folder)


def spec_of(module: str) -> ModuleSpec | None:
    """Where a module lies. importlib.util.find_spec alone would import the packages around it."""
    first, *others = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # no name, or the program that runs
        return None
    for number in range(len(others)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join([first, *others[: number + 1]]), spec.submodule_search_locations)
    return spec


def changed_since(modules: set[str], moment: float) -> list[Path]:
    """The files of these modules that were written after a moment."""
    specs = map(spec_of, sorted(modules))
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [file for file in files if file.exists() and file.stat().st_mtime > moment]
