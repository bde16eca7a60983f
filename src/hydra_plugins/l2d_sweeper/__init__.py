"""Hydra looks for plugins in this namespace and imports all of it at every start, so the work is done elsewhere."""

from collections.abc import Mapping
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class CellSweeper(Sweeper):
    """Runs every combination of the overrides that is not finished (l2d.runs.sweep), or a search (l2d.tuning.search).

    params: what an experiment runs over, {key: "choice,choice"} (conf/hydra/sweeper/cells.yaml).
    """

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        from l2d.runs.sweep import Workshop, sweep

        assert self.config is not None
        assert self.hydra_context is not None
        assert self.launcher is not None
        given = [*(f"{key}={value}" for key, value in self.params.items()), *arguments]
        shop = Workshop(self.config, self.hydra_context.config_loader, self.launcher, given)
        if self.config.tune.search is None:
            sweep(shop)
        else:
            from l2d.tuning.search import tune

            tune(shop)
