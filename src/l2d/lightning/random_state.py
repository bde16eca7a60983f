"""Restores the caller's random state and Ctrl-C handler after training."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from pytorch_lightning.utilities.seed import isolate_rng

SEEDS = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")  # where Lightning writes the seed, and whether it is for workers too


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the caller's random state, whatever is seeded and drawn inside."""
    seeds = {name: os.environ[name] for name in SEEDS if name in os.environ}
    try:
        with isolate_rng(include_cuda=torch.cuda.is_initialized()):
            yield
    finally:
        for name in SEEDS:
            os.environ.pop(name, None)
        os.environ |= seeds


@contextmanager
def interruptible() -> Iterator[None]:
    """Restore the caller's Ctrl-C handler: Lightning's ignores every Ctrl-C after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
