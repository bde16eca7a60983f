"""The W&B workspace for l2d's runs, built from code: l2d dashboard --entity NAME [--project l2d]."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from l2d.utils.errors import L2DError

SECTIONS = {
    "Test": ["test/deferral_loss", "test/error_rate", "test/mean_price"],
    "Validation": ["val/deferral_loss", "val/loss", "val/agrees_with_oracle"],
    "Training": ["train/loss", "lr"],
}
TABLES = (
    "test/table",
    "test/deferral_ratios_table",
    "test/confusion_table",
)  # W&B keeps a plot's data under its name + _table
CELL = ("dataset", "setup", "experts", "cost", "method")


def workspace(entity: str, project: str) -> Any:
    """Runs grouped by cell; bars for the test split, curves by epoch for the rest. Nothing is sent until it is saved."""
    try:
        panels: Any = import_module("wandb_workspaces.reports.v2")
        spaces: Any = import_module("wandb_workspaces.workspaces")
    except ImportError as error:
        raise L2DError("l2d.commands.dashboard needs wandb-workspaces: pip install 'l2d[dashboard]'") from error

    def section(name: str, metrics: list[str]) -> Any:
        if name == "Test":
            drawn = [panels.BarPlot(title=metric, metrics=[panels.SummaryMetric(metric)]) for metric in metrics]
        else:
            drawn = [panels.LinePlot(title=metric, x="epoch", y=[metric]) for metric in metrics]
        return spaces.Section(name=name, panels=drawn, is_open=True)

    tables = spaces.Section(name="Tables", panels=[panels.WeavePanelSummaryTable(table_name=name) for name in TABLES])
    return spaces.Workspace(
        entity=entity,
        project=project,
        name="l2d",
        sections=[*(section(name, metrics) for name, metrics in SECTIONS.items()), tables],
        runset_settings=spaces.RunsetSettings(groupby=[spaces.Config(f"{group}.name") for group in CELL]),
    )


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="l2d dashboard", description=__doc__)
    parser.add_argument("--entity", required=True, help="your W&B user or team")
    parser.add_argument("--project", default="l2d", help="as in logger.project")
    arguments = parser.parse_args(given)
    try:
        built = workspace(arguments.entity, arguments.project)
    except L2DError as error:
        sys.exit(f"error: {error}")
    try:
        print(built.save().url)
    except Exception as error:  # W&B's own: not logged in, no network, no such entity
        reason = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"error: Weights & Biases did not take the workspace ({reason})")
