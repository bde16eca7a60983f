"""l2d report: any folder, a sweep's cells, what is written and what is imported for it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands.refusals import refused
from tests.run_folders import write_run, write_small_table

from l2d.analysis.report.compare import summarise
from l2d.analysis.report.read import FinishedCell, read_cells
from l2d.analysis.report.tables import markdown_tables
from l2d.commands.report import cells_of_sweep, chosen_cells, main, write_report
from l2d.config import check, compose, titles
from l2d.runs.folder import RunFolder

FILES = {"index.html", "tables.md", "tables.tex", "verdicts.md"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_small_table(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("runs/", "5 runs, 2 cells"),
        ("runs/svhn/I/../I/synthetic/error/tdef", "3 runs, 1 cell"),
        ("runs/svhn/I/synthetic/error/mild/bbbb/seed=1", "1 run, 1 cell"),
    ],
)
def test_any_folder(given: str, said: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(runs.parent)
    main([given])
    finding, empty, first, *files = capsys.readouterr().out.splitlines()
    assert finding.startswith("svhn I synthetic error: best ")
    assert (empty, first[: len(said)]) == ("", said)
    assert {Path(file).name for file in files} == FILES
    assert {Path(file).resolve().parent for file in files} == {(runs.parent / given / "report").resolve()}
    assert "| SVHN | I | " in (runs.parent / given / "report" / "tables.md").read_text()


def test_the_folder_one_is_in(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs / "svhn/I/synthetic/error/mild/bbbb/seed=1"
    monkeypatch.chdir(run)
    main(["."])
    assert {file.name for file in (run / "report").iterdir()} == FILES
    monkeypatch.chdir(runs.parent)
    main([])  # runs/
    assert {file.name for file in (runs / "report").iterdir()} == FILES


def test_ten_findings_are_shown_and_the_others_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        write_run(tmp_path, f"set{number:02}/I/synthetic/error/mild/aaaa", 0, 0.1)
    main([str(tmp_path)])
    *findings, more, _, said = capsys.readouterr().out.splitlines()[:-3]
    assert [line.split()[0] for line in findings] == [f"set{number:02}" for number in range(10)]
    assert more == "(2 more on the page)"
    assert said.startswith("12 runs, 12 cells")
    for number in (10, 11):
        shutil.rmtree(tmp_path / f"set{number}")
    assert "more on the page" not in write_report([str(tmp_path)])


def test_the_page_of_a_sweep_says_which_and_what_is_missing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its cells has no run at all, another not every seed that was asked for."""
    cells = [replace(cell, wanted=tuple(range(5))) for cell in read_cells(runs)]
    cells.append(FinishedCell(("svhn", "I", "synthetic", "error", "ce", "cccc"), runs, wanted=(0,)))
    monkeypatch.setattr("l2d.commands.report.chosen_cells", lambda *_: cells)
    assert "5 runs, 3 cells, 1 of them without a finished run" in write_report([str(runs), "setup=I", "seed=0,1"])
    assert '"title":"setup=I seed=0,1"' in (runs / "report" / "index.html").read_text()


@pytest.mark.slow
def test_mistakes_are_one_line(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cell, others = runs / "svhn/I/synthetic/error/mild/bbbb", ["experiment=table1_cost", "dataset=svhn", "setup=I"]
    for given, said in (
        (["nowhere"], "nowhere: no such folder"),
        ([cell / "seed=9"], "seed=9: no such folder"),
        ([runs, "-m"], "-m"),
        ([runs, tmp_path], "one folder"),
        ([runs, "experiment=table9"], "table9"),
        ([tmp_path / "empty"], "empty: no finished run"),
        ([runs, *others], f"5 others: l2d report {runs} "),
        ([runs, *others, "method=mild", "method.tau=-1"], "method.tau=-1: "),
    ):
        assert said in refused(main, *given)


OVERRIDES = ["experiment=table1_error", "dataset=digits", "setup=I", "method=tdef,mild", "seed=0,1"]


@pytest.mark.slow
def test_missing_cells_are_marked(tmp_path: Path) -> None:
    cells = cells_of_sweep(OVERRIDES, [], tmp_path)
    assert [(cell.method, cell.wanted, cell.runs) for cell in cells] == [("tdef", (0, 1), {}), ("mild", (0, 1), {})]
    write_run(tmp_path, "/".join(cells[1].names), 1, 0.1)
    write_run(tmp_path, "/".join(cells[1].names), 4, 0.9)  # a seed that was not asked for
    cells = cells_of_sweep(OVERRIDES, read_cells(tmp_path), tmp_path)
    text = markdown_tables(summarise(cells), titles())
    assert "| Digits | I | tdef | 0/2 (few) | missing |" in text
    assert "| Digits | I | mild | 1/2 (few) | **0.1000** |" in text


@pytest.mark.slow
def test_cells_are_where_training_puts_them(tmp_path: Path) -> None:
    for method, cell in zip(("tdef", "mild"), cells_of_sweep(OVERRIDES, [], tmp_path), strict=True):
        config = check(compose(["dataset=digits", "setup=I", f"method={method}", f"runs_dir={tmp_path}"]))
        assert cell.folder == RunFolder.of(config.plain).path.parent


@pytest.mark.slow
def test_a_sweep_within_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder may have "=" in its name, which is no override; cells that belong elsewhere are not missing here."""
    root = tmp_path / "a=b"
    tdef, mild = cells_of_sweep(OVERRIDES, [], root)
    for cell in (tdef, mild):
        write_run(root, "/".join(cell.names), 0, 0.1)
    main([str(root), *OVERRIDES])
    assert "\n\n2 runs, 2 cells\n" in capsys.readouterr().out
    for folder in (root / "digits/I/synthetic/error/mild", mild.folder / "seed=0"):
        main([str(folder), *OVERRIDES])
        assert "\n\n1 run, 1 cell\n" in capsys.readouterr().out


@pytest.mark.slow
def test_cells_that_a_folder_lacks_are_of_it_too(tmp_path: Path) -> None:
    tdef, mild = cells_of_sweep(OVERRIDES, [], tmp_path)
    write_run(tmp_path, "/".join(tdef.names), 0, 0.1)
    found = [(cell.folder, [*cell.runs]) for cell in chosen_cells(tmp_path, OVERRIDES)]
    assert found == [(tdef.folder, [0]), (mild.folder, [])]
    [alone] = cells_of_sweep(["dataset=digits"], [], tmp_path)  # as l2d train has it, with its default seed
    assert alone.wanted == (0,)
    priced = ["dataset=digits", "setup=I", "cost=error_plus_cost"]
    named = "cost.prices={expert 3: 0.3, expert 1: 0.1, expert 2: 0.2}"  # the same cell as with a list
    by_name, listed = (
        cells_of_sweep([*priced, prices], [], tmp_path) for prices in (named, "cost.prices=[0.1,0.2,0.3]")
    )
    assert by_name[0].names == listed[0].names
