"""l2d dashboard: build the Weights & Biases workspace for l2d's runs."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from l2d.utils.errors import L2DError
from l2d.utils.extras import from_extra
from l2d.utils.user_errors import OneLineParser, answering

SECTIONS = {
    "Test": ["test/deferral_loss", "test/error_rate", "test/mean_price"],
    "Validation": ["val/deferral_loss", "val/loss", "val/agrees_with_oracle"],
    "Training": ["train/loss", "lr"],
}
# W&B keeps the data of a plot under its name + _table.
TABLES = ("test/table", "test/deferral_ratios_table", "test/confusion_table")
CELL = ("dataset", "setup", "experts", "cost", "method")


def build_workspace(entity: str, project: str) -> Any:
    """Runs grouped by cell; bars for the test split, curves by epoch for the rest. Nothing is sent before it is saved."""
    with from_extra("wandb", "l2d dashboard"):
        panels: Any = import_module("wandb_workspaces.reports.v2")
        spaces: Any = import_module("wandb_workspaces.workspaces")

    def section(name: str, metrics: Sequence[str]) -> Any:
        if name == "Test":
            drawn = [panels.BarPlot(title=metric, metrics=[panels.SummaryMetric(metric)]) for metric in metrics]
        else:
            drawn = [panels.LinePlot(title=metric, x="epoch", y=[metric]) for metric in metrics]
        return spaces.Section(name=name, panels=drawn, is_open=True)

    tables = spaces.Section(name="Tables", panels=[panels.WeavePanelSummaryTable(table_name=name) for name in TABLES])
    sections = [*(section(name, metrics) for name, metrics in SECTIONS.items()), tables]
    runs = spaces.RunsetSettings(groupby=[spaces.Config(f"{group}.name") for group in CELL])
    return spaces.Workspace(entity=entity, project=project, name="l2d", sections=sections, runset_settings=runs)


def main(arguments: list[str]) -> None:
    with answering():
        parser = OneLineParser(
            prog="l2d dashboard",
            description="Build the Weights & Biases workspace for l2d's runs, and print its address.",
            epilog="example:\n  l2d dashboard --entity my-team",
        )
        parser.add_argument("--entity", required=True, help="your W&B user or team")
        parser.add_argument("--project", default="l2d", help="the project, as in logger.project (default: %(default)s)")
        options = parser.parse_args(arguments)
        workspace = build_workspace(options.entity, options.project)
        try:
            print(workspace.save().url)
        except Exception as error:  # W&B raises many kinds: not logged in, no network, no such entity
            reason = " ".join(str(error).split()) or type(error).__name__
            raise L2DError(f"Weights & Biases refused the workspace ({reason})") from error
