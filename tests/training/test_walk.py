"""Arguments that the walk hands to Lightning and to the tracker. Whole walks are in tests/commands/test_train.py."""

import io
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import filelock
import pytest
import torch
from tests.metrics_example import example_metrics

import l2d
from l2d.config import Experiment, check, compose
from l2d.config.identity import cell_path
from l2d.core.guard import Guard
from l2d.data.arrays import Seen
from l2d.networks.estimators.linear import Ridge
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.tabular import MLP
from l2d.runs.folder import RunFolder
from l2d.runs.tracking import CsvTracker
from l2d.training import walk
from l2d.training.fitted import Fitted
from l2d.training.score import judge_validation
from l2d.utils.errors import Busy, L2DError
from l2d.utils.files import write_json

HISTORY: Any = ["history"]
DATA: Any = SimpleNamespace(parts=2, train_dataloader=lambda: range(7))


def trainer(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(walk, "make_trainer", lambda **given: given)
    found: Any = walk.trainer_of(experiment, HISTORY, ["callback"], DATA)
    return dict(found)


def test_the_trainer_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("trainer.accelerator=cpu", "trainer.deterministic=true", "trainer.devices=2", "recipe.epochs=4")
    experiment = check(compose(given))
    found = trainer(experiment, monkeypatch)
    wanted = {"accelerator": "cpu", "deterministic": True, "devices": 2, "strategy": "ddp", "max_epochs": 4}
    wanted |= {"logger": ["history"], "log_every_n_steps": 7, "accumulate_grad_batches": 2, "num_sanity_val_steps": 0}
    assert {key: found[key] for key in wanted} == wanted
    elsewhere = replace(experiment, trainer=replace(experiment.trainer, accelerator="mps"))
    assert trainer(elsewhere, monkeypatch)["accelerator"] == "mps"
    alone = replace(experiment, trainer=replace(experiment.trainer, devices=1))
    assert trainer(alone, monkeypatch)["strategy"] == "auto"
    half = replace(alone, recipe=replace(alone.recipe, precision="bf16-mixed"))
    assert trainer(half, monkeypatch)["precision"] == "32-true"  # a CPU does not take it


def test_bars_for_those_who_want_them_and_look(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = check(compose([]))
    for watched, progress in product((False, True), (False, True)):
        monkeypatch.setattr(walk, "is_watched", lambda watched=watched: watched)
        wanted = replace(experiment, settings=replace(experiment.settings, progress=progress))
        found = trainer(wanted, monkeypatch)
        assert found["enable_progress_bar"] is (watched and progress)


def test_only_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not walk.is_watched()
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "ipykernel", sys)
        assert walk.is_watched()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert walk.is_watched()


def test_what_a_tracker_is_told(tmp_path: Path) -> None:
    experiment = check(compose(["seed=3", "setup=I", "method=tdef"]))
    info = walk.make_tracker(experiment, RunFolder(tmp_path)).info
    assert (info.folder, info.name, info.config["seed"]) == (tmp_path, "seed=3", 3)
    assert info.group == cell_path(experiment.plain)
    assert info.tags == ["digits", "I", "synthetic", "error", "tdef"]


def test_force_is_for_other_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is cleared before the data are compared with it; without force they are refused."""
    made_anew = check(compose(["force=true"]))
    goes_on = replace(made_anew, settings=replace(made_anew.settings, force=False))
    network = MLP(width=2, depth=0, dropout=0, mean=[0], std=[1], num_outputs=2, head="linear")
    router: Any = SimpleNamespace(network=network, method=None)
    (tmp_path / "data.txt").write_text("old\n")
    splits: Any = SimpleNamespace(train=range(1234), validation=range(99), test=range(1))
    splits.panel = SimpleNamespace(names=[])
    said: list[str] = []
    monkeypatch.setattr(walk, "data_fingerprint", lambda _: "new")
    monkeypatch.setattr(walk, "tell", lambda _, text: said.append(text))

    def begin(experiment: Experiment) -> None:
        walk.begin(experiment, RunFolder(tmp_path), splits, router)

    with pytest.raises(L2DError, match="force=true"):
        begin(goes_on)
    begin(made_anew)
    assert (tmp_path / "data.txt").read_text() == "new\n"
    for word in ("mild", "digits", "seed 0", "1,234", "99", "15"):
        assert word in said[0]


class Walk:
    """The steps of a run with stand-ins for all that takes long. After three of four epochs, the second is the best."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *given: str) -> None:
        self.experiment = check(compose(["recipe.epochs=4", *given]))
        self.run, self.told, self.made = RunFolder(folder), dict[str, Any](), list[str]()
        self.epoch, self.left_out, self.monkeypatch = 4, list[float](), monkeypatch
        monkeypatch.setattr(walk, "make_data", lambda _, __, parts: self.note("data", parts))
        monkeypatch.setattr(walk, "make_router", self.router)
        monkeypatch.setattr(walk, "trainer_of", self.trainer)
        monkeypatch.setattr(walk, "run_epochs", self.epochs)
        monkeypatch.setattr(walk, "begin", lambda *_: None)
        monkeypatch.setattr(walk, "write", lambda *given, **_: self.note("timing", given[-1]))
        monkeypatch.setattr(CsvTracker, "report", lambda _, metrics: self.note("reported", metrics))

    def note(self, key: str, value: Any) -> Any:
        self.told[key] = value
        return value

    def splits(self, _: Experiment) -> Any:
        self.made.append("splits")
        return SimpleNamespace(train=range(1234), test=range(7), expert_seconds=30.0)

    def router(self, *_: Any) -> Any:
        return SimpleNamespace(load_state_dict=lambda weights: self.note("weights", weights))

    def trainer(self, _: Any, __: Any, callbacks: list[Any], ___: Any) -> Any:
        [self.checkpoint, _] = callbacks
        return SimpleNamespace(current_epoch=self.epoch)

    def epochs(self, *_: Any) -> None:
        if self.checkpoint.monitor:
            self.checkpoint.best_epoch, self.checkpoint.best_weights = 2, {"w": 1}

    def score(self, fitted: Fitted) -> Any:
        self.told["kept"] = (fitted.checkpoint, fitted.kept_epoch)
        return SimpleNamespace(metrics=example_metrics())

    def go(self, data: str = "new", parts: int = 1) -> Any:
        timer: Any = SimpleNamespace(leave_out=self.left_out.append, record=lambda rows: {"rows": rows})
        self.monkeypatch.setattr(walk, "data_fingerprint", lambda _: data)
        source = walk.Source(self.splits, self.score)
        self.monkeypatch.setattr(walk, "tell", lambda _, text: self.note("said", text))
        return walk.attempt(self.experiment, self.run, timer, source, parts)


@pytest.mark.parametrize(("checkpoint", "kept"), [("best", 2), ("last", 4)])
def test_the_steps_of_a_run(checkpoint: str, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ran out of memory before, so that its batches come in two parts."""
    patience = ["recipe.patience=3"] if checkpoint == "best" else []
    steps = Walk(tmp_path, monkeypatch, f"checkpoint={checkpoint}", *patience)
    assert steps.go(parts=2) == example_metrics()
    assert steps.checkpoint.patience == (3 if patience else None)
    assert steps.left_out == [30]
    wanted: dict[str, Any] = {"data": 2, "kept": (checkpoint, kept), "reported": example_metrics()}
    wanted |= {"weights": {"w": 1}} if checkpoint == "best" else {}
    assert steps.told == {**wanted, "timing": {"rows": 1234, "batch_parts": 2}}


@pytest.mark.parametrize(
    ("devices", "size", "parts", "said"),
    [
        (2, 1, 1, r"recipe\.batch_size=1$"),
        (2, 64, 1, r"recipe\.batch_size=32$"),
        (1, 64, 10, "batch_size=64: .*memory"),
    ],
)
def test_out_of_memory_with_nothing_to_divide(devices: int, size: int, parts: int, said: str) -> None:
    """Several processes cannot divide their batches, and ten rows make no more than ten parts."""
    experiment = check(compose([f"trainer.devices={devices}"]))
    data: Any = SimpleNamespace(batch_size=size, parts=parts, splits=SimpleNamespace(train=range(10)))
    with pytest.raises(L2DError, match=said):
        walk.smaller_batches(torch.OutOfMemoryError("CUDA out of memory"), experiment, data)


def test_a_run_is_not_begun_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Walk(tmp_path, monkeypatch)
    with filelock.FileLock(tmp_path / ".lock"), pytest.raises(Busy, match="another process"):
        steps.go()
    assert steps.made == []


def test_what_another_process_finished_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Walk(tmp_path, monkeypatch)
    write_json(tmp_path / "metrics.json", example_metrics(0.75).as_json())
    (tmp_path / "data.txt").write_text("new\n")
    assert steps.go() == example_metrics(0.75)
    assert "kept" not in steps.told
    with pytest.raises(L2DError, match="other data"):
        steps.go(data="other")


def test_a_run_goes_on_after_its_last_whole_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, said, fitted = RunFolder(tmp_path), list[str](), list[dict[str, Any]]()
    fit: Any = SimpleNamespace(max_epochs=2, fit=lambda _, **given: fitted.append(given))
    anything: Any = "data"
    monkeypatch.setattr(walk, "tell", lambda _, text: said.append(text))
    walk.run_epochs(fit, anything, anything, run)
    assert said == []
    run.checkpoints.mkdir()
    torch.save({"epoch": 2}, run.checkpoints / "last.ckpt")
    walk.run_epochs(fit, anything, anything, run)
    [line] = said
    assert "epoch 3" in line
    assert [given["ckpt_path"] for given in fitted] == [None, run.checkpoints / "last.ckpt"]


def test_a_forced_run_goes_on_after_running_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With force it would begin anew, and run out of memory again."""
    tried: list[tuple[bool, int]] = []

    def attempt(experiment: Experiment, *given: Any) -> None:
        tried.append((experiment.settings.force, given[-1]))
        if len(tried) < 3:
            raise walk.OutOfMemory(2 * given[-1])

    monkeypatch.setattr(walk, "attempt", attempt)
    walk.train(check(compose(["force=true"])), RunFolder(tmp_path))
    assert tried == [(True, 1), (False, 2), (False, 4)]


@pytest.mark.parametrize("text", [None, "prompt"])
def test_what_a_router_is_told_of_its_training(text: str | None) -> None:
    """The encoder is for those who see a text; prices that differ between rows are nobody's."""
    experiment = check(compose(["dataset=table", "dataset.path=a.csv"]))
    guard = Guard(offsets=None, constant=1, best=1, gain=-0.5, error=0.25)
    seen = Seen(text=text, features=("x", "y"))
    splits: Any = SimpleNamespace(panel=SimpleNamespace(names=("a", "b")), prices=torch.tensor([0.5, 0.25]))
    splits.arrays = SimpleNamespace(num_classes=3, seen=seen)
    splits.train = SimpleNamespace(source=torch.zeros(9, 8, 6))
    router: Any = SimpleNamespace(network=EstimatorNetwork(Ridge()))
    found = walk.describe(experiment, splits, router, guard)
    assert (found.experts, found.prices, found.num_classes, found.shape) == (("a", "b"), (0.5, 0.25), 3, (8, 6))
    assert (found.seen, found.guard) == (seen, guard)
    encoder = experiment.plain["dataset"]["encoder"]
    assert encoder is not None
    assert found.encoder == (None if text is None else encoder)
    splits.prices = None
    assert walk.describe(experiment, splits, router, guard).prices is None


def test_judging_that_runs_out_of_memory_starts_again_with_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, plain = list[int](), judge_validation

    def judge(fitted: Fitted) -> Any:
        parts.append(fitted.data.parts)
        if len(parts) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(fitted)

    monkeypatch.setattr(walk, "judge_validation", judge)
    rows = torch.linspace(-1, 1, 80)[:, None]
    costs = torch.cat([rows > 0, rows <= 0], dim=1).float()
    l2d.fit(rows, costs, method="mild", options={"recipe.epochs": 1, "progress": False})
    assert parts == [1, 2]
