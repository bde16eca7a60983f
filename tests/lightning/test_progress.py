"""Bars: epochs from 1, and only where somebody is looking."""

import io
import sys
from typing import Any

import pytest
import pytorch_lightning as pl
from tests.assembly.test_module import Parts
from tests.lightning.test_learner import Ending, rows_of

from l2d.lightning.learner import make_trainer
from l2d.lightning.progress import EpochsFromOne, is_watched


class Descriptions(pl.Callback):
    """What the bar calls each epoch."""

    def __init__(self, bar: EpochsFromOne) -> None:
        self.bar, self.seen = bar, list[str]()

    def on_train_batch_start(self, *_: Any) -> None:
        self.seen.append(self.bar.train_progress_bar.desc)


def test_epochs_count_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    bar = EpochsFromOne(refresh_rate=1)
    seen = Descriptions(bar)
    quiet = {"logger": False, "enable_checkpointing": False}
    trainer = make_trainer(accelerator="cpu", max_epochs=3, log_every_n_steps=1, callbacks=[bar, seen], **quiet)
    trainer.fit(Ending(lambda: None), Parts([rows_of(2)]))
    assert [description.removesuffix(": ") for description in seen.seen] == ["Epoch 1/3", "Epoch 2/3", "Epoch 3/3"]


def test_only_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not is_watched()
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "ipykernel", sys)
        assert is_watched()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert is_watched()
