"""Hydra looks for plugins in this namespace and imports all of it at every start, so the work is done elsewhere."""

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore


class CellSweeper(BasicSweeper):
    """Hydra's grid, run by what the run folders say: l2d.sweep."""

    def sweep(self, arguments: list[str]) -> Any:
        from l2d.sweep import sweep

        return sweep(self, arguments)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="cells",
    node={"_target_": f"{__name__}.CellSweeper", "max_batch_size": None, "params": None},
    provider="l2d",
)
