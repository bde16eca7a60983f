"""A search in a report: its winner is a row, its trials are not."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.run_folders import write_run, write_small_table

from l2d.analysis.report.compare import findings_of, summarise
from l2d.analysis.report.read import FinishedCell, read_cells, with_tuned
from l2d.analysis.report.tables import markdown_tables
from l2d.commands.report import chosen_cells
from l2d.utils.files import write_json

BLOCK = "svhn/I/synthetic/error"


def write_search(
    runs: Path, method: str = "mild", winner: str = "dddd", name: str = "tune-paper-1", **changes: Any
) -> Path:
    """It began with the variant bbbb, tried cccc and dddd with seed 0, and trained the winner on seeds 0 and 1."""
    folder = runs / BLOCK / method / name
    folder.mkdir(parents=True)
    result: dict[str, Any] = {
        "start": "../bbbb",
        "winner": f"../{winner}",
        "trial_runs": ["../cccc/seed=0", "../dddd/seed=0"],
    }
    result |= {"overrides": ["method.rho=2"], "trials": 2, "test_deferral_loss": {"tuned": {"0": 0.01, "1": 0.03}}}
    write_json(folder / "result.json", result | changes)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """SVHN, setup I: tdef and mild, and a search for mild's ρ. The winner has a third seed, which is not the search's."""
    root = tmp_path / "runs"
    write_small_table(root)
    write_run(root, f"{BLOCK}/mild/cccc", 0, 0.09, {"method": {"name": "mild", "rho": 1}})
    for seed, loss in enumerate([0.01, 0.03, 0.9]):
        write_run(root, f"{BLOCK}/mild/dddd", seed, loss, {"method": {"name": "mild", "rho": 2}})
    write_search(root)
    return root


def rows(cells: list[FinishedCell]) -> dict[str, Any]:
    return {row["label"]: row for row in summarise(cells) if row["kind"] == "router"}


def test_the_winner_is_a_row_and_the_trials_are_none(runs: Path) -> None:
    """Compared with tdef on its two seeds: −.04 and −.03. The paper's number is that of the method as it is."""
    found = rows(with_tuned(read_cells(runs)))
    assert list(found) == ["mild", "mild (tuned, best of 2)", "tdef"]
    tuned = found["mild (tuned, best of 2)"]
    assert (tuned["mean"], tuned["seeds"], tuned["wanted"]) == (pytest.approx(0.02), 2, 2)
    assert tuned["against_reference"][0] == pytest.approx(-0.035)
    assert (tuned["reference"], tuned["paper"]) == ("tdef", None)
    assert [row["chosen"] for row in found.values()] == ["", "rho=2", ""]
    cells = with_tuned(read_cells(runs))
    assert "rho=2 |" in markdown_tables(summarise(cells), {})
    assert "chosen" not in markdown_tables(summarise([cell for cell in cells if not cell.tuned]), {})
    [finding] = findings_of(cells)
    assert finding.best == "mild (tuned, best of 2)"


def test_a_damaged_search_is_left_out(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_search(runs, name="tune-paper-2") / "result.json"
    file.write_text('{"sta')
    assert "mild (tuned, best of 2)" in rows(with_tuned(read_cells(runs)))
    assert str(file) in capsys.readouterr().err


def test_if_the_start_wins_it_is_both(runs: Path) -> None:
    for file in (runs / BLOCK / "mild").glob("tune-*/*"):
        file.unlink()
    write_search(runs, winner="bbbb", name="tune-paper-2")
    found = rows(with_tuned(read_cells(runs)))
    assert found["mild (tuned, best of 2)"]["variant"] == "bbbb"
    plain = [label for label in found if label.startswith("mild") and "tuned" not in label]
    assert len(plain) == 2  # also dddd, which was not only tried: it has seeds that the search did not ask for


def test_a_tuned_tdef_is_no_reference(runs: Path) -> None:
    """Even if the search chose ρ = 1, and there is no other: then it is the best method."""
    for seed in (0, 1):
        write_run(runs, f"{BLOCK}/tdef/0000", seed, 0.01, {"method": {"name": "tdef", "rho": 1}})
    write_search(runs, "tdef", "0000", overrides=["method.rho=1"])
    found = rows(with_tuned(read_cells(runs)))
    assert found["mild"]["against_reference"][0] == pytest.approx(-0.025)
    assert found["tdef (tuned, best of 2)"]["against_reference"][0] == pytest.approx(-0.045)
    shutil.rmtree(runs / BLOCK / "tdef/aaaa")
    write_run(runs, f"{BLOCK}/ce/aaaa", 0, 0.001)
    assert rows(with_tuned(read_cells(runs)))["mild"]["reference"] == "ce"


def test_a_search_over_other_keys_is_compared_with_tdef_too(runs: Path) -> None:
    for seed in (0, 1):
        write_run(runs, f"{BLOCK}/mild/eeee", seed, 0.02, {"recipe": {"epochs": 9}})
    write_search(runs, winner="eeee", name="tune-values-1", overrides=["recipe.epochs=9"], trials=3)
    found = rows(with_tuned(read_cells(runs)))
    [label] = (label for label in found if label.startswith("mild (tuned, best of 3"))
    assert found[label]["reference"] == "tdef"


def test_searches_of_one_method_are_told_apart(runs: Path) -> None:
    """By what they chose, or else by their names."""
    write_search(runs, name="tune-values-1", trials=9)
    found = rows(with_tuned(read_cells(runs)))
    assert "mild (tuned, best of 2, tune-paper-1)" in found
    assert "mild (tuned, best of 9, tune-values-1)" in found


@pytest.mark.parametrize(
    "changes", [{"winner": "../gone"}, {"test_deferral_loss": {"tuned": {"8": 0.1}}}, {"trial_runs": []}], ids=str
)
def test_without_its_winner_a_search_hides_nothing(runs: Path, changes: dict[str, Any]) -> None:
    for file in (runs / BLOCK / "mild").glob("tune-*/*"):
        file.unlink()
    write_search(runs, name="tune-paper-2", **changes)
    assert "cccc" in {cell.names[5] for cell in with_tuned(read_cells(runs))}


def test_a_sweeps_cells_stay_and_the_winner_joins_them(runs: Path) -> None:
    """Here of mild alone. Its own cell is missing; the tuned one is read from its folder."""
    asked = FinishedCell((*BLOCK.split("/"), "mild", "bbbb"), runs / BLOCK / "mild/bbbb", wanted=(0,))
    plain, tuned = with_tuned([asked])
    assert (plain, tuned.tuned is not None, [*tuned.runs]) == (asked, True, [0, 1])
    tried = [replace(cell, wanted=(0, 1)) for cell in read_cells(runs) if cell.names[5] == "cccc"]
    assert with_tuned(tried) == tried


@pytest.mark.parametrize("variant", ["bbbb", "cccc"])
def test_a_folder_that_is_asked_for_is_shown(runs: Path, variant: str) -> None:
    [cell] = chosen_cells(runs / BLOCK / "mild" / variant, [])
    assert (cell.names[5], cell.tuned) == (variant, None)
