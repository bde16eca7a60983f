"""Tables in the documents are what bench/ makes of its CSV files: none was typed."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
Bench = Callable[[str], ModuleType]


def block(document: str, mark: str) -> str:
    """The text between the marks."""
    text = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    [found] = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    return str(found)


@pytest.mark.slow
def test_every_table(bench: Bench) -> None:
    """And what `make evidence` makes is all that is marked as generated there."""
    made = {(document, mark): text for document, mark, text in bench("evidence").tables()}
    for (document, mark), text in made.items():
        assert text == block(document, mark), mark
    marked = {
        (file.stem, mark)
        for file in (ROOT / "docs").glob("*.md")
        for mark in re.findall(r"<!-- /(.+?) -->", file.read_text(encoding="utf-8"))
    }
    measured = {("guide", "example")}  # not read from a file
    assert made.keys() == {place for place in marked if not place[1].startswith("generated")} - measured


def test_the_figure_of_the_readme(bench: Bench) -> None:
    """The gain on RouterDC's tasks."""
    pictures = bench("pictures")
    gain = pictures.gain_of(bench("benchmarks").RESULTS.read(), "routerdc", "", "label_regression")
    assert "{:.1f} ± {:.1f} more".format(*gain) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_figures_of_the_recommended_methods(bench: Bench) -> None:
    """A line for each, with its loss relative to MILD's and the interval, in both documents."""
    wanted = {"experts": "trained", "cost": "error"}
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in ("docs/beyond.md", "README.md")]
    for name, text in itertools.product(("LABELS", "NO_LABELS"), texts):
        method = getattr(bench("beyond"), name)
        start = rf"(?:\|[^|]*\| `|- `method=){method.split(',')[0]}\b"
        [line] = [line for line in text.splitlines() if re.match(start, line)]
        found = [f"{abs(100 * one):.0f}" for one in bench("beyond").relative_to_mild(method, wanted)]
        assert sorted(re.findall(r"(\d+) %? ?(?:less|to|more|%)", line)) == sorted(found)


def test_claims_name_tests_that_exist(bench: Bench) -> None:
    for row in bench("records").read(bench("verdicts").CLAIMS):
        file, _, names = row["why"].partition(": ")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not file.startswith("tests/") or all(f"def {name}(" in text for name in names.split(", ")), row
