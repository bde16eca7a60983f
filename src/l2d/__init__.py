"""Two-stage learning to defer under expert imbalance: train a router over fixed experts.

The names in __all__ are imported when they are first used: `import l2d` alone imports neither torch nor anything else slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from l2d.serving.router import Router

    __version__: str

__all__ = ["Router", "__version__"]

_MODULES = {"Router": "l2d.serving.router"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'l2d' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("l2d")
    except PackageNotFoundError:  # run from the source, not installed
        return "unknown"
