"""Experts that came with the data."""

from pathlib import Path

import pytest
import torch

from l2d.assembly.build import make_splits
from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.data.arrays import Answers, Arrays, Panel
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions, ExpertRequest, TableExperts
from l2d.utils.errors import L2DError


def ask(folder: Path, panel: Panel | None, coverage: list[float] | None = None) -> Panel:
    rows, labels = torch.zeros(2, 1), torch.full((2,), -1)
    arrays = Arrays(rows, labels, rows, labels, 0, panel=panel)
    request = ExpertRequest(arrays, torch.arange(2), coverage, 0, Cache(folder), folder, ComputeOptions())
    experts: TableExperts = make(check(compose(["experts=table"])).experts)
    assert experts.seed is None
    return experts.panel(request)


def test_they_are_handed_on(tmp_path: Path) -> None:
    answers = Answers(torch.eye(2, dtype=torch.float64))
    panel = Panel(("a", "b"), answers, answers)
    assert ask(tmp_path, panel) is panel
    with pytest.raises(L2DError, match=r"^setup\.coverage: .* setup=own"):
        ask(tmp_path, panel, [0.5, 0.5])
    with pytest.raises(L2DError, match=r"^experts=table: needs dataset=table"):
        make_splits(check(compose(["experts=table"])))
