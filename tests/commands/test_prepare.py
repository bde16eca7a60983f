"""`l2d prepare`: what it says of the dataset."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.commands.prepare import prepare_job
from l2d.config import compose


def test_both_splits_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    train, test = torch.zeros(1200, 8, 6, 1), torch.zeros(30, 8, 6, 1)
    arrays = SimpleNamespace(train_inputs=train, test_inputs=test, num_classes=10)
    asked: list[Any] = []

    def load(place: Any) -> SimpleNamespace:
        asked.append(str(place))
        return arrays

    monkeypatch.setattr("l2d.assembly.make.make_dataset", lambda _: SimpleNamespace(load=load))
    prepare_job(compose(["data_dir=elsewhere"]))
    assert asked == ["elsewhere"]
    for line, n in zip(capsys.readouterr().out.splitlines(), ("1,200", "30"), strict=True):
        assert re.findall(r"\d[\d,]*\d|\d", line) == [n, "8", "6", "1", "10"]
