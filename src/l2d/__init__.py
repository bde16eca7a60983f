"""Two-stage learning to defer under expert imbalance: train a router over fixed experts.

The names in __all__ are imported when they are first used: `import l2d` alone imports neither torch nor anything else slow.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing's own would be most of the time that the import takes
if TYPE_CHECKING:
    from l2d import functional
    from l2d.api.estimator import RouterEstimator, deferral_scorer
    from l2d.api.fit import fit
    from l2d.methods.method import Method
    from l2d.router.choices import Choice
    from l2d.router.router import Router
    from l2d.router.score import Comparison, RouterScore

    __version__: str

__all__ = ["Choice", "Comparison", "Method", "Router", "RouterEstimator", "RouterScore", "__version__"]
__all__ += ["deferral_scorer", "fit", "functional"]
_MODULES = {
    "Choice": "router.choices",
    "Comparison": "router.score",
    "Method": "methods.method",
    "Router": "router.router",
    "RouterEstimator": "api.estimator",
    "RouterScore": "router.score",
    "deferral_scorer": "api.estimator",
    "fit": "api.fit",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"l2d.{_MODULES[name]}"), name)
    if name == "functional":
        return import_module("l2d.functional")
    if name == "__version__":
        return import_module("l2d.utils.text").own_version()
    raise AttributeError(f"module 'l2d' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
