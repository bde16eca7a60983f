"""Training leaves the caller's process as it was."""

import os
import random
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from l2d.lightning.random_state import SEEDS, interruptible, random_state_kept


def draws() -> tuple[float, float, float]:
    return random.random(), np.random.random(), float(torch.rand(1))  # noqa: NPY002


def test_a_training_that_fails_leaves_the_random_state_too() -> None:
    with random_state_kept():
        expected = draws()
    with suppress(KeyboardInterrupt), random_state_kept():
        pl.seed_everything(3, verbose=False)
        raise KeyboardInterrupt
    assert draws() == expected


@pytest.mark.parametrize("before", [None, "1"])
def test_no_seed_and_no_draw_reaches_the_caller(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning writes its seed into the environment, where the caller's next `seed_everything` would find it."""
    for name in SEEDS:
        monkeypatch.setenv(name, before or "")
        if before is None:
            monkeypatch.delenv(name)
    with random_state_kept():
        expected = draws()
    with random_state_kept():
        pl.seed_everything(3, verbose=False)
        draws()
    assert [os.environ.get(name) for name in SEEDS] == [before, before]
    assert draws() == expected


def test_ctrl_c_is_the_callers_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before
    done = []

    def elsewhere() -> None:
        with interruptible():
            pass
        done.append("done")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == ["done"]
