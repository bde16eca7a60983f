"""Training that leaves the caller's process as it was: random numbers, Ctrl-C."""

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
    """The caller's random streams stay where they are, whatever is seeded and drawn within."""
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
    """Lightning ignores every Ctrl-C after the first; the caller's own handler is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
