"""Experts whose answers came with the data."""

from l2d.data.arrays import Panel
from l2d.experts.request import Request
from l2d.utils.errors import L2DError


class TableExperts:
    """Those of dataset=table. Nothing is drawn: the seed is that of the validation split."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def panel(self, request: Request) -> Panel:
        if request.arrays.panel is None:
            raise L2DError("experts=table: needs dataset=table, whose columns say what the experts did")
        if request.coverage is not None:
            raise L2DError("setup.coverage: the experts of a table have none; leave setup=own")
        return request.arrays.panel
