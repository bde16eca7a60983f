"""Run folders in, cells out: of any folder, unfinished, damaged."""

from pathlib import Path

import pytest
from tests.run_folders import write_run, write_small_table

from l2d.analysis.report.read import FinishedCell, folder_among, read_cells
from l2d.utils.errors import L2DError


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_small_table(tmp_path)
    return tmp_path


def test_unfinished_and_damaged_runs_are_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished, bad, nan, odd = (runs / "svhn/I/synthetic/error/mild/bbbb" / f"seed={seed}" for seed in (5, 6, 7, 8))
    for folder in (unfinished, bad, nan, odd):
        folder.mkdir()
    (bad / "metrics.json").write_text('{"deferral_loss": ')
    (nan / "metrics.json").write_text('{"deferral_loss": NaN}')
    (odd / "metrics.json").mkdir()
    (runs / ".sweeps" / "x").mkdir(parents=True)
    assert {cell.method: sorted(cell.runs) for cell in read_cells(runs)} == {"tdef": [0, 1, 2], "mild": [0, 1]}
    warnings = capsys.readouterr().err.splitlines()
    for line, folder in zip(warnings, (bad, nan, odd), strict=True):
        assert f"{folder}/metrics.json" in line


@pytest.mark.parametrize("content", [b"[", b"- a", b"\xff", None])
def test_cells_whose_config_cannot_be_read_are_left_out(content: bytes | None, runs: Path) -> None:
    file = runs / "svhn/I/synthetic/error/mild/bbbb/seed=0/config.yaml"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert [cell.method for cell in read_cells(runs)] == ["tdef"]


def test_hidden_folders_are_skipped_and_brackets_are_no_pattern(tmp_path: Path) -> None:
    write_small_table(tmp_path / "a[1]")
    write_run(tmp_path / "a[1]", ".old/I/synthetic/error/mild/bbbb", 0, 0.9)
    write_run(tmp_path / "a[1]", "bench/1234567/svhn/I/synthetic/error/mild/bbbb", 0, 0.9)  # too deep
    assert [cell.names[0] for cell in read_cells(tmp_path / "a[1]")] == ["svhn", "svhn"]


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        (".", {"tdef": [0, 1, 2], "mild": [0, 1]}),
        ("svhn", {"tdef": [0, 1, 2], "mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild", {"mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild/bbbb", {"mild": [0, 1]}),
        ("svhn/I/synthetic/error/mild/bbbb/seed=1", {"mild": [1]}),
    ],
)
def test_any_folder_of_runs(
    folder: str, found: dict[str, list[int]], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same runs, under the same names, from the root and from the folder they are in."""
    cells = read_cells(runs / folder)
    assert {cell.method: sorted(cell.runs) for cell in cells} == found
    assert {cell.block for cell in cells} == {("svhn", "I", "synthetic", "error")}
    monkeypatch.chdir(runs)
    here = read_cells(Path(folder))
    assert [(cell.names, sorted(cell.runs)) for cell in here] == [(cell.names, sorted(cell.runs)) for cell in cells]
    assert all(cell.config["method"]["name"] == cell.method for cell in here)


def test_a_folder_among_settings(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "svhn/I/synthetic/error/mild/bbbb")
    assert folder_among(["seed=1", "seed=7"]) == (Path("seed=1"), ["seed=7"])
    monkeypatch.chdir(runs)
    (runs / "runs").mkdir()
    assert folder_among(["hydra/launcher=joblib"]) == (Path("runs"), ["hydra/launcher=joblib"])
    with pytest.raises(L2DError, match=r"^b: .*a "):
        folder_among(["a", "b"])


def test_a_learning_curve_is_the_mean_of_the_seeds_that_have_the_epoch(tmp_path: Path) -> None:
    """The second seed stopped after one epoch, and one epoch of the first was not validated."""
    lines = {0: "1,0.5\n2,\n3,0.25\n", 1: "1,0.75\n", 2: None}
    for seed, text in lines.items():
        (tmp_path / f"seed={seed}").mkdir()
        if text is not None:
            (tmp_path / f"seed={seed}" / "history.csv").write_text(f"epoch,val/deferral_loss\n{text}")
    cell = FinishedCell(("a",), tmp_path, runs=dict.fromkeys(lines))  # type: ignore[arg-type]
    assert cell.learning_curve() == [(1, 0.625), (3, 0.25)]
