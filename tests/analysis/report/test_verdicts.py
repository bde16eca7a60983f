"""Each number of the paper beside ours, and the verdict on it."""

from pathlib import Path

import pytest
from tests.run_folders import write_run

from l2d.analysis.report.paper import PaperNumber, paper_blocks, paper_claims, paper_numbers
from l2d.analysis.report.read import read_cells
from l2d.analysis.report.verdicts import Measured, PaperVerdict, measured_in, verdicts, verdicts_page
from l2d.commands.report import write_report

NAMES = ("svhn", "III", "synthetic", "error", "mild")
TITLES = {"dataset": {"svhn": "SVHN"}}


def ours(*losses: float, method: str = "mild", recipe: str = "fast", validation: float = 0.1) -> Measured:
    seeds = dict(enumerate(losses))
    return Measured((*NAMES[:4], method), recipe, seeds, dict.fromkeys(seeds, validation))


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
    one = PaperVerdict(PaperNumber("1", NAMES, 1.0, std), {"fast": ours(*losses)}, None)
    assert one.word == word


def test_the_papers_recipe_comes_first_and_the_most_seeds_count() -> None:
    by_recipe = {"fast": ours(1.0, 1.0, 1.0), "paper": ours(2.0, 2.0, 2.0, recipe="paper")}
    number = PaperNumber("1", NAMES, 1.0, 0.0)
    assert PaperVerdict(number, by_recipe, None).word == "worse"
    assert PaperVerdict(number, {}, None).word == "not run"
    asked = PaperNumber("3", ("mmlu", "llm", "llm", "error", "mild"), 1.0, 0.0)
    assert PaperVerdict(asked, {}, None).word == "not reproducible"
    # Runs that differ in speed alone are the same experiment.
    many, one = ours(0.02, 0.02, 0.02), ours(0.5)
    for given in ([many, one], [one, many]):
        assert next(found for found in verdicts(given) if found.number.names == NAMES).judged is many


def test_every_printed_number_has_a_verdict() -> None:
    found = verdicts([])
    assert len(found) == len(paper_numbers()) == 104
    assert {one.word for one in found} == {"not run", "not reproducible"}
    assert [one.number.names[2] == "llm" for one in found] == [one.word == "not reproducible" for one in found]


def test_the_best_method_is_chosen_on_validation() -> None:
    """plugin has the least test loss, ce the least validation loss; one seed does not count."""
    rivals = [
        ours(0.02, 0.02, 0.02, validation=0.03),
        ours(0.01, 0.01, 0.01, method="plugin", validation=0.02),
        ours(0.03, 0.03, 0.03, method="ce", validation=0.01),
        ours(0.001, method="ldam", validation=0.001),
    ]
    mild = next(one for one in verdicts(rivals) if one.number.names == NAMES)
    assert mild.best is rivals[2]
    assert mild.judged is rivals[0]
    elsewhere = next(one for one in verdicts(rivals) if one.number.names == ("svhn", "I", *NAMES[2:]))
    assert (elsewhere.best, elsewhere.judged) == (None, None)


@pytest.mark.parametrize(
    ("mild", "words"),
    [
        ((0.02, 0.02, 0.02), ["0.0200", "-0.0300 [-0.0548, -0.0052]", "MILD is better", "mild 0.0200"]),
        ((0.06, 0.07, 0.08), ["TDEF is better"]),
        ((0.03, 0.05, 0.07), ["no significant difference"]),
    ],
)
def test_mild_against_tdef(mild: tuple[float, ...], words: list[str]) -> None:
    lines = verdicts_page([ours(*mild), ours(0.04, 0.05, 0.06, method="tdef")], TITLES).splitlines()
    [against] = [line for line in lines if line.startswith("| SVHN | III | synthetic | error | fast |")]
    assert all(word in against for word in ["-0.0331", "0.0500", *words])


def test_the_page_has_every_number_and_every_claim() -> None:
    lines = verdicts_page([ours(0.02, 0.02, 0.02), ours(0.04, 0.05, 0.06, method="tdef")], TITLES).splitlines()
    for words in ("104", "2 better", "14 not reproducible", "88 not run"):
        assert words in lines[0]
    [mild] = [line for line in lines if line.startswith("| 1 | SVHN | III | synthetic | error | mild |")]
    assert "| 0.0353 ± 0.0020 |  | 0.0200 ± 0.0000 (3) | better |" in mild
    assert sum(line.startswith("| Theorem 5.1") for line in lines) == 1
    for other in (ours(0.04, 0.05, 0.06, method="tdef", recipe="paper"), ours(0.04, 0.05, method="tdef")):
        page = verdicts_page([ours(0.02, 0.02, 0.02), other], TITLES)
        assert "| fast |" not in page


def test_a_cell_the_paper_does_not_print_is_compared_all_the_same() -> None:
    severe = ("svhn", "severe", "synthetic", "error")
    losses = {"mild": 0.2, "tdef": 0.3}
    pair = [Measured((*severe, name), "fast", dict.fromkeys(range(3), loss), {}) for name, loss in losses.items()]
    assert "| SVHN | severe | synthetic | error | fast |  | 0.3000 | 0.2000 | -0.1000 [" in verdicts_page(pair, TITLES)
    assert severe in paper_blocks()
    assert ("svhn", "severe", "trained", "error_plus_cost") not in paper_blocks()


def test_only_the_papers_runs_are_measured(tmp_path: Path) -> None:
    write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", 0, 0.1)
    write_run(tmp_path, "svhn/III/synthetic/error/mild/bbbb", 0, 0.2, {"method": {"name": "mild", "rho": 5.2}})
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    [found] = measured_in(read_cells(tmp_path))
    assert (found.names, found.test) == (NAMES, {0: 0.1})
    assert found.validation.keys() == {0}


def test_a_report_has_the_page_if_a_run_is_the_papers(tmp_path: Path) -> None:
    write_run(tmp_path, "digits/III/synthetic/error/mild/aaaa", 0, 0.3)
    assert "verdicts.md" not in write_report([str(tmp_path)])
    assert not (tmp_path / "report" / "verdicts.md").exists()
    write_run(tmp_path, "svhn/III/synthetic/error/mild/aaaa", 0, 0.1)
    assert str(tmp_path / "report" / "verdicts.md") in write_report([str(tmp_path)])


def test_claims_name_tests_that_exist() -> None:
    for claim in paper_claims():
        file, _, names = claim.why.partition(": ")
        assert Path(file).exists(), claim
        if file.startswith("tests/"):
            text = Path(file).read_text(encoding="utf-8")
            assert all(f"def {name}(" in text for name in names.split(", ")), claim
