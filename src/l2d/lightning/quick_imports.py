"""Imports Lightning in half the time: torchmetrics imports large packages only to see whether they exist."""

import atexit
import gc
import sys

# Packages that torchmetrics looks for. Its metrics for images, audio and text need them; l2d uses none of those.
UNUSED = ("transformers", "scipy", "torchvision", "matplotlib")


def import_quickly() -> None:
    """Import torchmetrics without those packages, before Lightning does. Only for l2d's own commands: parts stay missing."""
    if "torchmetrics" in sys.modules:
        return
    from lightning_utilities.core import imports

    gc.disable()  # until freeze_what_lives: it finds nothing among a million new objects, and takes a fifth of the time
    cache, is_there = imports.RequirementCache, imports.package_available
    is_met = cache.__bool__
    cache.__bool__ = lambda self: not str(self.requirement).startswith(UNUSED) and is_met(self)  # type: ignore[method-assign]
    imports.package_available = lambda name: name not in UNUSED and is_there(name)  # type: ignore[assignment]
    try:
        import torchmetrics  # noqa: F401
    finally:
        cache.__bool__, imports.package_available = is_met, is_there  # type: ignore[method-assign]


def freeze_what_lives() -> None:
    """Exempt the objects of imports and of the compiler from garbage collection: it runs before every run of a sweep, and these
    objects live as long as the process. Only for l2d's own commands: nothing that exists now is looked at again."""
    if gc.isenabled():  # not the first time, when import_quickly has switched it off: imports leave hardly any garbage
        gc.collect()
    gc.freeze()
    gc.enable()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # at the end all is freed, or some libraries complain of leaks
