"""Where a run stands is read off its folder, and said without running anything."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.metrics_example import example_metrics

from l2d.assembly.fingerprints import data_fingerprint
from l2d.commands.train import answered
from l2d.config import Experiment, check, compose
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError
from l2d.utils.files import write_json


def prepared(folder: Path, state: str, data: str = "") -> RunFolder:
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    if data:
        (folder / "data.txt").write_text(data + "\n")
    if state != "missing":
        run.checkpoints.mkdir()
        (run.checkpoints / "last.ckpt").touch()
    if state == "finished":
        write_json(folder / "metrics.json", example_metrics(0.25, p=5).as_json())
    return run


def experiment(**changes: Any) -> Experiment:
    return check(compose([f"{key}={value}" for key, value in changes.items()]))


@pytest.mark.parametrize("state", ["missing", "begun", "finished"])
@pytest.mark.parametrize("force", ["true", "false"])
@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_what_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, force: str, dry_run: str
) -> None:
    """A dry run prints the state; a finished run its result, unless it is run again."""
    run = prepared(tmp_path / "run", state)
    finished = state == "finished" and force == "false"
    assert answered(experiment(dry_run=dry_run, force=force), run) is (finished or dry_run == "true")
    out = capsys.readouterr().out
    assert (str(run.path) in out) == (state in out) == (finished or dry_run == "true")
    assert ("0.25" in out) == (finished and dry_run == "false")


def test_a_result_of_other_data_is_not_taken(tmp_path: Path) -> None:
    asked = experiment(dataset="mmlu_sim")
    data = data_fingerprint(asked)
    assert len(data) == 16
    assert answered(asked, prepared(tmp_path / "same", "finished", data))
    with pytest.raises(L2DError, match="other data"):
        answered(asked, prepared(tmp_path / "other", "finished", data[::-1]))


def test_it_is_said_that_ones_own_code_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(tmp_path / "run", "finished")
    loss = tmp_path / "my_loss_file.py"
    loss.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for moment, warned in ((1, False), (2**33, True)):
        os.utime(loss, (moment, moment))
        found = experiment()
        assert found.own_modules == set()
        found = replace(found, method=replace(found.method, target="my_loss_file.Mine"))
        assert answered(found, run)
        assert (str(loss) in capsys.readouterr().out) is warned
