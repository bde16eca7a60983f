"""History in the folder always; W&B offline, without a prompt, closed whatever happens."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from omegaconf import DictConfig
from tests.metrics_example import example_metrics
from tests.running import folder_of, train

from l2d.runs.history import HistoryLogger
from l2d.runs.tracking import RunInfo, WandbTracker
from l2d.utils.errors import L2DError


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_history_merges_an_epochs_rows_and_forgets_what_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    first = HistoryLogger(file)
    for epoch in range(3):
        first.log_metrics({"val/deferral_loss": 0.5 - epoch / 10, "epoch": epoch}, step=epoch)
        first.log_metrics({"train/loss": 1.0, "epoch": epoch}, step=epoch)
    assert [row["epoch"] for row in read(file)] == ["1", "2", "3"]
    assert read(file)[1] == {"epoch": "2", "step": "1", "train/loss": "1.0", "val/deferral_loss": "0.4"}
    resumed = HistoryLogger(file)
    resumed.log_metrics({"val/deferral_loss": 0.4, "epoch": 1}, step=1)
    assert [row["epoch"] for row in read(file)] == ["1", "2"]
    resumed.log_metrics({"epoch": 2, **dict.fromkeys("gcbfdae", 0.0)}, step=2)
    columns = "epoch,step,a,b,c,d,e,f,g,train/loss,val/deferral_loss"
    assert file.read_text().splitlines()[0] == columns


class FakeRun:
    settings = SimpleNamespace(mode="offline")

    def __init__(self) -> None:
        self.exit_code: int | None = None

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def info(tmp_path: Path) -> RunInfo:
    return RunInfo(tmp_path, "digits/III", "seed=0", ["digits", "III"], {"seed": 0})


def test_the_run_is_closed_when_training_raises(
    info: RunInfo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FakeRun()
    monkeypatch.setattr(WandbTracker, "_start", lambda *_: run)
    with pytest.raises(RuntimeError), WandbTracker(info, project="l2d", entity=None, mode="offline"):
        raise RuntimeError
    assert run.exit_code == 1
    capsys.readouterr()
    for mode in ("offline", "online"):
        run.settings = SimpleNamespace(mode=mode)
        with WandbTracker(info, project="l2d", entity=None, mode="offline"):
            pass
        assert run.exit_code == 0
        upload = f"wandb sync {info.folder}/wandb/offline-run-*"
        assert (upload in capsys.readouterr().err) == (mode == "offline")


def test_online_only_when_logged_in(info: RunInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login is looked for without asking; WANDB_MODE and logger.mode come first."""
    asked: list[dict[str, Any]] = []
    logged_in = False

    class Wandb:
        @staticmethod
        def login(**arguments: Any) -> bool:
            asked.append(arguments)
            return logged_in

    def effective(mode: Literal["auto", "online", "offline"]) -> str:
        tracker = WandbTracker(info, project="l2d", entity=None, mode=mode)
        tracker.wandb = Wandb  # type: ignore[assignment]
        return tracker._effective_mode()

    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert effective("auto") == "offline"
    with pytest.raises(L2DError, match=r"logger\.mode=online: "):
        effective("online")
    logged_in = True
    assert effective("auto") == effective("online") == "online"
    assert all(arguments == {"prompt": False, "verify": False} for arguments in asked)
    assert effective("offline") == "offline"
    for mode in ("offline", "disabled"):
        monkeypatch.setenv("WANDB_MODE", mode)
        assert effective("auto") == mode
        assert effective("online") == "online"


class FakeWandb:
    """Cannot be reached in some modes. A table is its rows, a picture its figure."""

    def __init__(self) -> None:
        self.begun, self.failing = list[dict[str, Any]](), {"online"}

    def Settings(self, **_: Any) -> None:
        """None are looked at."""

    def Table(self, *, data: list[Any], **_: Any) -> list[Any]:
        return data

    def Image(self, figure: Any) -> Any:
        return figure

    def init(self, **given: Any) -> str:
        self.begun.append(given)
        if given["mode"] in self.failing:
            raise ConnectionError("no route\nto host")
        return "run"


def test_a_run_goes_offline_where_online_was_not_asked_for(info: RunInfo, capsys: pytest.CaptureFixture[str]) -> None:
    """All else stays: its group, its tags, and the id under which it is resumed."""
    tracker, wandb = WandbTracker(info, project="p", entity="e", mode="auto"), FakeWandb()
    tracker.wandb = wandb  # type: ignore[assignment]
    assert tracker._start("online") == "run"
    assert "ConnectionError: no route to host" in capsys.readouterr().err
    online, offline = wandb.begun
    assert offline == {**online, "mode": "offline"}
    known: dict[str, Any] = {"project": "p", "entity": "e", "group": "digits/III", "name": "seed=0"}
    known |= {"tags": ["digits", "III"], "config": {"seed": 0}, "dir": str(info.folder), "resume": "allow"}
    assert {key: online[key] for key in known} == known
    assert online["id"] == (info.folder / "wandb_id.txt").read_text()
    tracker._start("offline")
    assert wandb.begun[-1]["id"] == online["id"]
    wandb.failing.add("offline")
    with pytest.raises(L2DError, match=r"^logger\.mode=auto: .*ConnectionError"):
        tracker._start("offline")
    tracker.mode = "online"
    with pytest.raises(L2DError, match=r"^logger\.mode=online: .*no route to host"):
        tracker._start("online")


def test_what_is_reported(info: RunInfo) -> None:
    logged, summary = dict[str, Any](), dict[str, float]()
    tracker: Any = WandbTracker(info, project="p", entity=None, mode="offline")
    tracker.wandb = FakeWandb()
    tracker.run = SimpleNamespace(log=logged.update, summary=summary)
    metrics = example_metrics(0.5, confusion=[[1, 2], [0, 1]], ratios=[0.25, 0.75], error_rate=0.375, mean_price=0.125)
    tracker.report(metrics)
    assert logged["test/table"][0][:2] == ["router", "0.5000"]
    assert logged["test/deferral"].format == "PNG"
    assert summary == {"test/deferral_loss": 0.5, "test/error_rate": 0.375, "test/mean_price": 0.125}


@pytest.mark.full
def test_a_real_offline_run(tiny: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two runs in one process stay two runs; each carries its group, tags, curves, table and picture."""
    for key in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-such-netrc"))
    ids = []
    for seed in (0, 1):
        cfg = tiny("logger=wandb", "recipe.epochs=1", f"seed={seed}")
        train(cfg)
        folder = folder_of(cfg)
        (offline,) = (folder / "wandb").glob("offline-run-*")
        ids.append((folder / "wandb_id.txt").read_text())
        assert offline.name.endswith(ids[-1])
        (record,) = offline.glob("*.wandb")
        content = record.read_bytes()
        names = ("val/deferral_loss", "test/table", "test/deferral")
        for text in ("digits/III/synthetic/error/mild/", *names):
            assert text.encode() in content, text
        tables = [json.loads(file.read_text()) for file in offline.rglob("*.table.json")]
        assert any("deferral loss" in table["columns"] for table in tables)
        assert (folder / "history.csv").exists()
    assert ids[0] != ids[1]
