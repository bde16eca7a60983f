"""Independent random streams from one seed. Every draw (validation split, experts, initial weights, the order of each epoch) has
one, named by its purpose: a change to one never affects another, and a resumed run draws the same as an uninterrupted one."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 32-bit seed for one purpose; the same on every machine and in every process."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def stream(seed: int, *purpose: str | int) -> "np.random.Generator":
    import numpy as np  # not above: a finished run is shown without it

    return np.random.default_rng(derive_seed(seed, *purpose))
