"""What the walk hands to Lightning and to the tracker. Whole walks are in tests/commands/test_train.py."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from l2d.config import Experiment, check, compose
from l2d.config.identity import cell_path
from l2d.learning.progress import EpochsFromOne
from l2d.networks.tabular import MLP
from l2d.runs.folder import RunFolder
from l2d.training import walk
from l2d.utils.errors import L2DError

DATA: Any = SimpleNamespace(parts=2, train_dataloader=lambda: range(7))
TRACKER: Any = SimpleNamespace(loggers=["history"])


def trainer(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(walk, "make_trainer", lambda **given: given)
    found: Any = walk.trainer_of(experiment, TRACKER, ["callback"], DATA)
    return dict(found)


def test_the_trainer_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("trainer.accelerator=cpu", "trainer.deterministic=true", "trainer.devices=3", "recipe.epochs=4")
    experiment = check(compose(given))
    found = trainer(experiment, monkeypatch)
    wanted = {"accelerator": "cpu", "deterministic": True, "devices": 3, "strategy": "ddp", "max_epochs": 4}
    wanted |= {"logger": ["history"], "log_every_n_steps": 7, "accumulate_grad_batches": 2, "num_sanity_val_steps": 0}
    assert {key: found[key] for key in wanted} == wanted
    alone = replace(experiment, trainer=replace(experiment.trainer, devices=1))
    assert trainer(alone, monkeypatch)["strategy"] == "auto"


def test_bars_for_those_who_want_them_and_look(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = check(compose([]))
    for watched, progress in product((False, True), (False, True)):
        monkeypatch.setattr(walk, "is_watched", lambda watched=watched: watched)
        wanted = replace(experiment, settings=replace(experiment.settings, progress=progress))
        found = trainer(wanted, monkeypatch)
        assert found["enable_progress_bar"] is (watched and progress)
        assert any(isinstance(one, EpochsFromOne) for one in found["callbacks"]) is (watched and progress)


def test_what_a_tracker_is_told(tmp_path: Path) -> None:
    experiment = check(compose(["seed=3", "setup=I", "method=tdef"]))
    info = walk.make_tracker(experiment, RunFolder(tmp_path)).info
    assert (info.folder, info.name, info.config["seed"]) == (tmp_path, "seed=3", 3)
    assert info.group == cell_path(experiment.plain)
    assert info.tags == ["digits", "I", "synthetic", "error", "tdef"]


def test_force_is_for_other_data_too(tmp_path: Path) -> None:
    """What was there is cleared before the data are compared with it; without force they are refused."""
    made_anew = check(compose(["force=true"]))
    goes_on = replace(made_anew, settings=replace(made_anew.settings, force=False))
    router: Any = SimpleNamespace(
        network=MLP(width=2, depth=0, dropout=0, mean=[0], std=[1], num_outputs=2, head="linear"), method=None
    )
    (tmp_path / "data.txt").write_text("old\n")
    source = walk.Source(fingerprint=lambda _: "new")
    splits: Any = SimpleNamespace(panel=SimpleNamespace(names=[]), train=range(1234))
    said: list[str] = []

    def begin(experiment: Experiment) -> None:
        walk.begin(experiment, RunFolder(tmp_path), source, splits, router, said.append)

    with pytest.raises(L2DError, match="force=true"):
        begin(goes_on)
    begin(made_anew)
    assert (tmp_path / "data.txt").read_text() == "new\n"
    assert said[-1] == "training mild on digits, seed 0: 1,234 rows, 15 epochs"
