"""Restores the caller's random state and Ctrl-C handler after training."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SEEDS = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")  # where Lightning writes the seed, and whether it is for workers too


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the caller's random state, whatever is seeded and drawn inside. Lightning's isolate_rng does not after an error."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    seeds = {name: os.environ[name] for name in SEEDS if name in os.environ}
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
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
