"""Experts that came with the data."""

from pathlib import Path

import pytest
import torch

from l2d.config import compose
from l2d.data.arrays import Answers, Arrays, Panel
from l2d.experts.cache import Cache
from l2d.experts.request import Machine, Request
from l2d.routing.build import build, make
from l2d.utils.errors import L2DError


def test_they_are_handed_on(tmp_path: Path) -> None:
    answers = Answers(torch.eye(2, dtype=torch.float64))
    panel = Panel(("a", "b"), answers, answers)
    rows, labels = torch.zeros(2, 1), torch.full((2,), -1)
    arrays = Arrays(rows, labels, rows, labels, 0, panel=panel)
    request = Request(arrays, torch.arange(2), None, 0, Cache(tmp_path), tmp_path, Machine())
    experts = make(compose(["experts=table"]).experts)
    assert experts.panel(request) is panel
    assert experts.seed is None


def test_other_datasets_have_none() -> None:
    with pytest.raises(L2DError, match=r"^experts=table: needs dataset=table"):
        build(compose(["experts=table"]))
