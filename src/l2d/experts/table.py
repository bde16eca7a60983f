"""Experts whose answers came with the data."""

from l2d.data.arrays import Panel
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.errors import L2DError
from l2d.utils.parameters import Seed


class TableExperts(Experts):
    """The experts of dataset=table. Nothing is random: the seed only draws the validation split."""

    def __init__(self, *, seed: Seed | None = None) -> None:
        self.seed = seed

    def panel(self, request: ExpertRequest) -> Panel:
        if request.arrays.panel is None:
            raise L2DError("experts=table: needs dataset=table, whose columns hold the outcomes of the experts")
        if request.coverage is not None:
            raise L2DError("setup.coverage: the experts of a table have none; use setup=own")
        return request.arrays.panel
