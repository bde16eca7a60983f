"""`l2d prepare`: what it says of the dataset."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.commands.prepare import prepare_job
from l2d.config import compose


def test_both_splits_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = SimpleNamespace(
        train_inputs=torch.zeros(1200, 8, 6, 1), test_inputs=torch.zeros(30, 8, 6, 1), num_classes=10
    )
    asked: list[Any] = []

    def load(place: Any) -> SimpleNamespace:
        asked.append(str(place))
        return arrays

    monkeypatch.setattr("l2d.assembly.make.make_dataset", lambda _: SimpleNamespace(load=load))
    prepare_job(compose(["data_dir=elsewhere"]))
    assert asked == ["elsewhere"]
    assert capsys.readouterr().out == (
        "digits train: 1,200 inputs [8, 6, 1], 10 classes\ndigits test: 30 inputs [8, 6, 1], 10 classes\n"
    )
