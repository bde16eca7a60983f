"""l2d dashboard: build the Weights & Biases workspace for l2d's runs."""

from importlib import import_module
from typing import Any

from l2d.config.identity import NAMED
from l2d.utils.errors import L2DError, from_extra
from l2d.utils.user_errors import OneLineParser, answering

SECTIONS = {
    "Test": ["test/deferral_loss", "test/error_rate", "test/mean_price"],
    "Validation": ["val/deferral_loss", "val/loss", "val/agrees_with_oracle"],
    "Training": ["train/loss", "lr"],
}


def build_workspace(entity: str, project: str) -> Any:
    """Runs grouped by cell; bars for the test split, curves by epoch for the rest. Nothing is sent before it is saved."""
    with from_extra("wandb", "l2d dashboard"):
        panels: Any = import_module("wandb_workspaces.reports.v2")
        spaces: Any = import_module("wandb_workspaces.workspaces")

    def plot(metric: str) -> Any:
        if metric.startswith("test/"):
            return panels.BarPlot(title=metric, metrics=[panels.SummaryMetric(metric)])
        return panels.LinePlot(title=metric, x="epoch", y=[metric])

    shown = [panels.WeavePanelSummaryTable(table_name="test/table"), panels.MediaBrowser(media_keys=["test/deferral"])]
    tables = spaces.Section(name="Results", panels=shown)
    drawn = {name: [plot(metric) for metric in metrics] for name, metrics in SECTIONS.items()}
    sections = [*(spaces.Section(name=name, panels=found, is_open=True) for name, found in drawn.items()), tables]
    runs = spaces.RunsetSettings(groupby=[spaces.Config(f"{group}.name") for group in NAMED])
    return spaces.Workspace(entity=entity, project=project, name="l2d", sections=sections, runset_settings=runs)


def main(arguments: list[str]) -> None:
    with answering():
        about = "Build the Weights & Biases workspace for l2d's runs, and print its address."
        parser = OneLineParser(prog="l2d dashboard", description=about)
        parser.add_argument("--entity", required=True, help="your W&B user or team")
        parser.add_argument("--project", default="l2d", help="the project, as in logger.project (default: %(default)s)")
        options = parser.parse_args(arguments)
        workspace = build_workspace(options.entity, options.project)
        try:
            print(workspace.save().url)
        except Exception as error:  # W&B raises many kinds: not logged in, no network, no such entity
            raise L2DError(f"Weights & Biases refused the workspace ({' '.join(repr(error).split())})") from error
