"""Training that leaves the caller's random numbers alone."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SEED = "PL_GLOBAL_SEED"  # where Lightning writes the seed


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The caller's random streams stay where they are, whatever is seeded and drawn within."""
    python, legacy, seed = random.getstate(), np.random.get_state(), os.environ.get(SEED)  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        os.environ.pop(SEED, None)
        os.environ |= {} if seed is None else {SEED: seed}
