"""Tables in the documents are what bench/ makes of its CSV files: none was typed."""

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


# A script, what makes the table of it, and where the table stands.
TABLES: list[tuple[str, Callable[[ModuleType], str], str, str]] = [
    ("guard", lambda it: it.table(it.DRAWN.read()), "beyond", "guard-errs"),
    ("budget", lambda it: it.table(it.POINTS.read()), "llm_routing", "budget"),
    ("serve", lambda it: it.table(it.RESULTS.read()), "serving", "serve-speed"),
    ("speed_docs", lambda it: it.sharing(), "scaling", "sharing"),
    ("digits", lambda it: it.table(it.read(it.RESULTS)), "digits", "bench-digits"),
    ("latency", lambda it: it.table(it.CALLS.read()), "llm_routing", "latency"),
    ("why_mild", lambda it: it.choice_table(it.RUNS.read()), "why_mild", "choice"),
    ("rho_size", lambda it: it.table(it.SIZES.read(), "synthetic"), "why_mild", "mass"),
    ("rho_size", lambda it: it.table(it.SIZES.read(), "trained"), "why_mild", "mass-trained"),
    ("llm", lambda it: it.gap_table(it.DATA.read()), "verdicts", "gap-mmlu"),
    ("llm", lambda it: it.tally_table(it.RUNS.read()), "beyond", "llm-tally"),
    ("logs", lambda it: it.gains_table(), "llm_routing", "log gains"),
    ("logs", lambda it: it.coverage_table(), "llm_routing", "log coverage"),
    ("paper_recipe", lambda it: it.table([*it.unchanged(), *it.CHANGED.read()]), "verdicts", "paper_recipe"),
    ("tuned", lambda it: it.table(it.TUNED.read(), it.records.paper_runs(recipe="fast")), "verdicts", "tuned"),
]


@pytest.mark.parametrize(("script", "make", "document", "mark"), TABLES)
def test_table(script: str, make: Callable[[ModuleType], str], document: str, mark: str, bench: Bench) -> None:
    assert make(bench(script)) == block(document, mark)


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("mark", ["speed", "reached", "sweeps", "start", "memory", "small", "large"])
def test_speed(mark: str, bench: Bench) -> None:
    docs = bench("speed_docs")
    by: dict[str, list[dict[str, str]]] = {}
    for row in docs.read(docs.RESULTS / "speed.csv"):
        by.setdefault(row["what"], []).append(row)
    assert docs.PARTS[mark](by) == block("speed", mark)


def test_tables_of_several_files(bench: Bench) -> None:
    startup, benchmarks = bench("startup"), bench("benchmarks")
    assert startup.table(bench("records").read(startup.RESULTS)) == block("speed", "startup")
    for document in ("beyond", "verdicts"):
        for mark, table in bench(document).parts().items():
            assert table == block(document, mark)
    for mark, table in benchmarks.tables(benchmarks.RESULTS.read()).items():
        assert table == block("benchmarks", mark)


def test_figures_of_the_readme(bench: Bench) -> None:
    """A line for each method that is recommended, with its loss relative to MILD's and the interval."""
    readme, wanted = (ROOT / "README.md").read_text(encoding="utf-8"), {"experts": "trained", "cost": "error"}
    for name in ("LABELS", "NO_LABELS"):
        method = getattr(bench("beyond"), name)
        [line] = [line for line in readme.splitlines() if f"| `method={method.split(',')[0]}" in line]
        found = [f"{abs(100 * one):.0f}" for one in bench("beyond").relative_to_mild(method, wanted)]
        assert sorted(re.findall(r"(\d+) %? ?(?:less|to|more|%)", line.split("|")[3])) == sorted(found)


@pytest.mark.slow
def test_tables_with_a_note_below(bench: Bench) -> None:
    rows = bench("why_mild").RUNS.read()
    assert block("why_mild", "steps").startswith(bench("why_mild").steps_table(rows))
    assert block("why_mild", "curves").startswith(bench("why_mild").curve_table(rows))
    assert block("theory", "readings").startswith(bench("readings").table())


def test_claims_name_tests_that_exist(bench: Bench) -> None:
    for row in bench("records").read(bench("verdicts").CLAIMS):
        file, _, names = row["why"].partition(": ")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not file.startswith("tests/") or all(f"def {name}(" in text for name in names.split(", ")), row
