"""Hydra looks for plugins in this namespace and imports all of it at every start, so the work is done elsewhere."""

from typing import Any

from l2d.config.hydra_adapter import BasicSweeper


class CellSweeper(BasicSweeper):
    """Hydra's grid, run by what the run folders say (l2d.runs.sweep), or a search (l2d.tuning.study).

    Its keys: conf/hydra/sweeper/cells.yaml.
    """

    def __init__(self, max_batch_size: int | None, params: Any) -> None:
        super().__init__(max_batch_size, params)

    def sweep(self, arguments: list[str]) -> Any:
        if self.config is not None and self.config.tune.search is not None:
            from l2d.tuning.study import tune

            return tune(self, arguments)
        from l2d.runs.sweep import sweep

        return sweep(self, arguments)
