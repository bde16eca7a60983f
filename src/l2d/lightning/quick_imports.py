"""Imports Lightning in half the time: torchmetrics imports large packages only to see whether they exist."""

import atexit
import gc
import sys

from l2d.utils import interrupts

# Packages that torchmetrics looks for. Its metrics for images, audio and text need them; l2d uses none of those.
UNUSED = ("transformers", "scipy", "torchvision", "matplotlib")


def import_quickly() -> None:
    """Import torchmetrics without those packages, before Lightning imports it; saves two seconds or more. Only for l2d's own
    commands: the skipped parts of torchmetrics stay missing until the process ends."""
    if "torchmetrics" in sys.modules:
        return
    from lightning_utilities.core.imports import RequirementCache

    gc.disable()  # until freeze_what_lives: it finds nothing among a million new objects, and takes a fifth of the time
    is_met = RequirementCache.__bool__
    RequirementCache.__bool__ = lambda self: not str(self.requirement).startswith(UNUSED) and is_met(self)  # type: ignore[method-assign]
    try:
        import torchmetrics  # noqa: F401
    finally:
        RequirementCache.__bool__ = is_met  # type: ignore[method-assign]


def freeze_what_lives() -> None:
    """Exempt the objects of imports and of the compiler from garbage collection: it runs before every run of a sweep, and these
    objects live as long as the process. Only for l2d's own commands: nothing that exists now is looked at again."""
    if gc.isenabled():  # not the first time, when import_quickly has switched it off: imports leave hardly any garbage
        with interrupts.deferred():
            gc.collect()
    gc.freeze()
    gc.enable()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # at the end all is freed, or some libraries complain of leaks
