"""The workspace's specification (saving it needs a login), and the command around it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from l2d.commands import dashboard
from l2d.commands.dashboard import SECTIONS, build_workspace, main
from l2d.config.identity import NAMED


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb_workspaces.*")
def test_the_specification_names_what_the_tracker_logs() -> None:
    pytest.importorskip("wandb_workspaces")
    built = build_workspace("someone", "l2d")
    spec = json.loads(built._to_model().model_dump_json())
    text = json.dumps(spec)
    assert (spec["entity"], spec["project"]) == ("someone", "l2d")
    metrics = [metric for metrics in SECTIONS.values() for metric in metrics]
    for key in (*metrics, "test/table", "test/deferral", *(f"{group}.value.name" for group in NAMED)):
        assert key in text


def test_bars_for_the_test_split_and_curves_by_epoch_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for the packages of W&B, which name what they were asked for."""

    class Named:
        def __getattr__(self, kind: str) -> Any:
            return lambda *given, **named: SimpleNamespace(kind=kind, given=given, **named)

    monkeypatch.setattr(dashboard, "import_module", lambda _: Named())
    built = build_workspace("someone", "l2d")
    drawn = [(section.name, len(section.panels), section.panels[0].kind) for section in built.sections]
    assert drawn[:2] == [("Test", 3, "BarPlot"), ("Validation", 3, "LinePlot")]
    assert drawn[2:] == [("Training", 2, "LinePlot"), ("Results", 2, "WeavePanelSummaryTable")]
    assert [rule.given[0] for rule in built.runset_settings.groupby] == [f"{name}.name" for name in NAMED]
    [test, validation, *_] = built.sections
    assert [panel.title for panel in test.panels] == ["test/deferral_loss", "test/error_rate", "test/mean_price"]
    assert [panel.metrics[0].given[0] for panel in test.panels] == [panel.title for panel in test.panels]
    assert [(panel.x, panel.y) for panel in validation.panels] == [("epoch", [key]) for key in SECTIONS["Validation"]]


def test_the_address_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def build(entity: str, project: str) -> SimpleNamespace:
        return SimpleNamespace(save=lambda: SimpleNamespace(url=f"https://{entity}/{project}"))

    monkeypatch.setattr(dashboard, "build_workspace", build)
    for more, url in (([], "https://team/l2d\n"), (["--project", "other"], "https://team/other\n")):
        main(["--entity", "team", *more])
        assert capsys.readouterr().out == url


def test_what_wandb_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("not logged in\nrun wandb login")

    monkeypatch.setattr(dashboard, "build_workspace", lambda *_: SimpleNamespace(save=refuse))
    with pytest.raises(SystemExit, match=r"^error: .*run wandb login.*$"):
        main(["--entity", "team"])
