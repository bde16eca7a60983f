"""Where a run's folder is, when it is finished, who may write in it."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

from l2d.config import check, compose
from l2d.config.identity import cell_path, variant
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError


def config(*overrides: str) -> dict[str, Any]:
    return dict(check(compose(overrides)).plain)


def test_path() -> None:
    plain = config("seed=3", "setup=I", "cost=error_plus_cost", "method=tdef", "runs_dir=elsewhere")
    expected = Path("elsewhere/digits/I/synthetic/error_plus_cost/tdef") / variant(plain) / "seed=3"
    assert RunFolder.of(plain).path == expected
    assert cell_path(plain) == str(expected.parent.relative_to("elsewhere"))
    at_home = Path.home() / "mine" / expected.relative_to("elsewhere")
    assert RunFolder.of(plain | {"runs_dir": "~/mine"}).path == at_home


def test_finish_writes_metrics_last(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for loss, seconds in ((0.1, float("nan")), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="JSON"):
            run.finish({"deferral_loss": loss}, {"scores": np.zeros(3)}, {"seconds": seconds})
        assert not run.finished
    run.finish({"deferral_loss": 0.1}, {"scores": np.zeros(3)}, {"seconds": 1.0})
    assert run.finished
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"deferral_loss": 0.1}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["metrics.json", "test.npz", "timing.json"]


def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with another_process(tmp_path), pytest.raises(L2DError, match="another process"), run.locked():
        pass
    with run.locked(), run.locked(), pytest.raises(filelock.Timeout), another_process(tmp_path):
        pass  # its own process may take it twice
    with another_process(tmp_path):
        pass


def another_process(folder: Path) -> AbstractContextManager[object]:
    """A lock that this process does not know of."""
    return filelock.FileLock(folder / ".lock", timeout=0)


def test_unwritable_folder_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(L2DError, match=r"^runs_dir: .*file"), RunFolder(tmp_path / "file" / "cell").locked():
        pass
    with pytest.raises(L2DError, match=r"^runs_dir: .*too long"):
        _ = RunFolder(tmp_path / ("x" * 300)).finished


def test_clear_keeps_the_lock(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with run.locked():
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").write_text("x")
        (tmp_path / "metrics.json").write_text("{}")
        run.clear()
        assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_half_written_files_of_a_killed_process_go(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for left in (".metrics.json.7.tmp.json", "checkpoints/.last.ckpt.7.tmp.ckpt"):
        (tmp_path / left).touch()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    with RunFolder(tmp_path).locked():
        assert {entry.name for entry in tmp_path.rglob("*")} == {".lock", "checkpoints", "last.ckpt"}


def test_data_are_written_down_once_and_never_for_a_finished_run(tmp_path: Path) -> None:
    """Nobody knows what a run that was finished without them was run on."""
    run = RunFolder(tmp_path)
    run.check_data("")
    assert not (tmp_path / "data.txt").exists()
    run.check_data("one")
    run.check_data("one")
    run.check_data("")
    assert (tmp_path / "data.txt").read_text() == "one\n"
    with pytest.raises(L2DError, match="other data"):
        run.check_data("other")
    (tmp_path / "data.txt").unlink()
    (tmp_path / "metrics.json").touch()
    run.check_data("other")
    assert not (tmp_path / "data.txt").exists()


def test_the_config_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The config of a finished run, or of a router that was saved without one."""
    run, config = RunFolder(tmp_path), {"seed": 3, "dataset": {"name": "Zürich", "label": None}}
    run.write_config(config)
    said = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    assert said == "seed: 3\ndataset:\n  name: Zürich\n  label: null\n"
    with pytest.raises(L2DError, match="not finished"):
        run.config()
    for whole in ("metrics.json", "router.json"):
        (tmp_path / whole).touch()
        assert run.config() == config
        (tmp_path / whole).unlink()
    (tmp_path / "metrics.json").touch()
    (tmp_path / "config.yaml").write_bytes(b"seed: \xff\n")  # not in UTF-8
    with pytest.raises(L2DError, match=r"config\.yaml: "):
        run.config()


def test_asking_who_holds_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert not run.held
    assert not list(tmp_path.iterdir())
    with another_process(tmp_path):
        assert run.held
    with run.locked():
        assert not run.held  # by others
    assert not run.held
