"""Imports Lightning in half the time: torchmetrics and timm import large packages only to see whether they exist."""

import atexit
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import patch

from l2d.utils import interrupts

# Packages that torchmetrics looks for. Its metrics for images, audio and text need them; l2d uses none of those.
UNUSED = frozenset({"transformers", "scipy", "torchvision", "matplotlib"})


def import_quickly() -> None:
    """Import torchmetrics and timm without those packages, before Lightning and l2d's networks import them.

    Only for l2d's own commands: the skipped parts of torchmetrics stay missing until the process ends.
    """
    if "torchmetrics" in sys.modules or "timm" in sys.modules:
        return
    gc.disable()  # until freeze_what_lives: among a million new objects it finds nothing, and takes a fifth of the time
    with suppress(AttributeError), _hidden_from_torchmetrics():  # another version: imported as usual, later
        import torchmetrics  # noqa: F401
    with _absent("wandb"):
        import timm.utils  # noqa: F401


def freeze_what_lives() -> None:
    """Spare the garbage collector the objects of imports and of the compiler: before every run of a sweep it looks for cycles, and
    these objects live as long as the process. Only for l2d's own commands: nothing that exists now is looked at again."""
    if gc.isenabled():  # not the first time, when import_quickly has switched it off: imports leave hardly any garbage
        with interrupts.deferred():
            gc.collect()
    gc.freeze()
    gc.enable()
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # at the end all is freed, or some libraries complain of leaks


@contextmanager
def _hidden_from_torchmetrics() -> Iterator[None]:
    from lightning_utilities.core import imports

    is_met, is_there = imports.RequirementCache.__bool__, imports.package_available

    def met(cache: imports.RequirementCache) -> bool:
        [name] = re.findall(r"^\w*", cache.module or cache.requirement or "")
        return name not in UNUSED and is_met(cache)

    def there(name: str) -> bool:
        return name not in UNUSED and is_there(name)

    with (
        patch.object(imports.RequirementCache, "__bool__", met),
        patch.object(imports, "package_available", there),
    ):
        yield


@contextmanager
def _absent(package: str) -> Iterator[None]:
    """An import of it fails, as if it were not installed."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
