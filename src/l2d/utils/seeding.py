"""Independent random streams from one seed.

Every draw (validation split, experts, initial weights, the order of each epoch) has a stream of its own, named by its purpose.
So changing one never shifts another, and a resumed run draws what an unbroken one would have drawn.
"""

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 32-bit seed for one purpose; the same on every machine and in every process."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng(derive_seed(seed, *purpose))


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The caller's random streams stay where they are, whatever is seeded and drawn within."""
    import torch

    python, legacy, key = random.getstate(), np.random.get_state(), os.environ.get("PL_GLOBAL_SEED")  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        os.environ.pop("PL_GLOBAL_SEED", None)
        os.environ |= {} if key is None else {"PL_GLOBAL_SEED": key}
