"""Each number of the paper beside ours, and the verdict on it."""

from pathlib import Path

import pytest
from tests.run_folders import write_run

from l2d.analysis.report.paper import PaperNumber
from l2d.analysis.report.read import read_cells
from l2d.analysis.report.verdicts import Measured, PaperVerdict, measured_in, verdicts, verdicts_page
from l2d.commands.report import write_report

NAMES = ("svhn", "III", "synthetic", "error", "mild")
TITLES = {"dataset": {"svhn": "SVHN"}}


def ours(*losses: float, method: str = "mild", recipe: str = "fast") -> Measured:
    return Measured((*NAMES[:4], method), recipe, dict(enumerate(losses)))


@pytest.mark.parametrize(
    ("losses", "std", "word"),
    [
        ((1.0, 1.0, 1.0), 0.0, "reproduced"),
        ((1.049, 1.049, 1.049), 0.0, "reproduced"),  # within 5 %
        ((1.051, 1.051, 1.051), 0.0, "worse"),
        ((0.94, 0.94, 0.94), 0.0, "better"),
        ((1.08, 1.08, 1.08), 0.1, "reproduced"),  # two standard errors of the paper's five runs: .0894
        ((1.1, 1.1, 1.1), 0.1, "worse"),
        ((1.0, 1.1, 1.2), 0.0, "reproduced"),  # two of our own: .1155
        ((1.02, 1.12, 1.22), 0.0, "worse"),
        ((0.5, 0.5), 0.0, "few seeds"),
    ],
)
def test_the_rule_by_hand(losses: tuple[float, ...], std: float, word: str) -> None:
    one = PaperVerdict(PaperNumber("1", NAMES, 1.0, std), {"fast": ours(*losses)})
    assert one.word == word


def test_the_papers_recipe_comes_first_and_the_most_seeds_count() -> None:
    by_recipe = {"fast": ours(1.0, 1.0, 1.0), "paper": ours(2.0, 2.0, 2.0, recipe="paper")}
    number = PaperNumber("1", NAMES, 1.0, 0.0)
    assert PaperVerdict(number, by_recipe).word == "worse"
    assert PaperVerdict(number, {}).word == "not run"
    asked = PaperNumber("3", ("mmlu", "llm", "llm", "error", "mild"), 1.0, 0.0)
    assert PaperVerdict(asked, {}).word == "not reproducible"
    # Runs that differ in speed alone are the same experiment.
    many, one = ours(0.02, 0.02, 0.02), ours(0.5)
    for given in ([many, one], [one, many]):
        assert next(found for found in verdicts(given) if found.number.names == NAMES).judged is many


def test_the_page_has_every_number() -> None:
    lines = verdicts_page([ours(0.02, 0.02, 0.02), ours(0.04, 0.05, 0.06, method="tdef")], TITLES).splitlines()
    for words in ("104", "2 better", "14 not reproducible", "88 not run"):
        assert words in lines[0]
    [mild] = [line for line in lines if line.startswith("| 1 | SVHN | III | synthetic | error | mild |")]
    assert "| 0.0353 ± 0.0020 |  | 0.0200 ± 0.0000 (3) | better |" in mild


def test_only_the_papers_runs_are_measured(tmp_path: Path) -> None:
    write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", 0, 0.1)
    write_run(tmp_path, "svhn/III/synthetic/error/mild/bbbb", 0, 0.2, {"method": {"name": "mild", "rho": 5.2}})
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    [found] = measured_in(read_cells(tmp_path))
    assert (found.names, found.test) == (NAMES, {0: 0.1})


def test_a_report_has_the_page_if_a_run_is_the_papers(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    assert "verdicts.md" not in write_report([str(tmp_path)])
    assert not (tmp_path / "report" / "verdicts.md").exists()
    write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", 0, 0.1)
    assert str(tmp_path / "report" / "verdicts.md") in write_report([str(tmp_path)])
