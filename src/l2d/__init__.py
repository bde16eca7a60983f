"""Two-stage learning to defer under expert imbalance: train a router over fixed experts.

The names in __all__ are imported when they are first used: `import l2d` alone imports neither torch nor anything else slow.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing's own would be most of the time that the import takes
if TYPE_CHECKING:
    from l2d.serving.router import Router

    __version__: str

__all__ = ["Router", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Router":
        return import_module("l2d.serving.router").Router
    if name == "__version__":
        return import_module("l2d.utils.version").own_version()
    raise AttributeError(f"module 'l2d' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
