"""The workspace's specification; saving it needs a login."""

import json

import pytest

from l2d.commands.dashboard import CELL, SECTIONS, TABLES, workspace


@pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb_workspaces.*")
def test_the_specification_names_what_the_tracker_logs() -> None:
    pytest.importorskip("wandb_workspaces")
    built = workspace("someone", "l2d")
    spec = json.loads(built._to_model().model_dump_json())
    text = json.dumps(spec)
    assert (spec["entity"], spec["project"]) == ("someone", "l2d")
    for key in [
        *(metric for metrics in SECTIONS.values() for metric in metrics),
        *TABLES,
        *(f"{group}.value.name" for group in CELL),
    ]:
        assert key in text
