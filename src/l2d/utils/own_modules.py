"""Modules of the user's own, which lie in the folder that a command is typed in."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def look_here() -> None:
    """Find modules in the current folder too, after all others; also in the processes that this one starts."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    paths = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, here])


def changed_since(modules: set[str], moment: float) -> list[Path]:
    """The files of these modules that were written after a moment."""
    specs = [find_spec(module) for module in sorted(modules)]
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [file for file in files if file.exists() and file.stat().st_mtime > moment]
