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
    text = (ROOT / document).read_text(encoding="utf-8")
    [found] = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    return str(found)


@pytest.mark.parametrize(
    ("script", "results", "document", "mark"),
    [
        ("guard", "DRAWN", "docs/beyond.md", "guard-errs"),
        ("budget", "POINTS", "docs/llm_routing.md", "budget"),
        ("serve", "RESULTS", "docs/serving.md", "serve-speed"),
    ],
)
def test_table(script: str, results: str, document: str, mark: str, bench: Bench) -> None:
    module = bench(script)
    assert module.table(getattr(module, results).read()) == block(document, mark)


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("mark", ["speed", "reached", "sweeps", "start", "memory", "small", "large"])
def test_speed(mark: str, bench: Bench) -> None:
    docs = bench("speed_docs")
    by: dict[str, list[dict[str, str]]] = {}
    for row in docs.read(docs.RESULTS / "speed.csv"):
        by.setdefault(row["what"], []).append(row)
    assert docs.PARTS[mark](by) == block("docs/speed.md", mark)


def test_sharing(bench: Bench) -> None:
    assert bench("speed_docs").sharing() == block("docs/scaling.md", "sharing")


def test_startup(bench: Bench) -> None:
    startup = bench("startup")
    assert startup.table(bench("records").read(startup.RESULTS)) == block("docs/speed.md", "startup")


def test_digits(bench: Bench) -> None:
    digits = bench("digits")
    assert digits.table(digits.read()) == block("docs/digits.md", "bench-digits")


def test_latency(bench: Bench) -> None:
    latency = bench("latency")
    assert latency.table(latency.read()) == block("docs/llm_routing.md", "latency")


def test_beyond(bench: Bench) -> None:
    beyond = bench("beyond")
    rows = beyond.RUNS.read()
    rows += beyond.others(rows, bench("records").read(beyond.WHY))
    assert beyond.tally_table(rows) == block("docs/beyond.md", "images-tally")
    assert beyond.first_table(rows) == block("docs/beyond.md", "first")


def test_why_mild(bench: Bench) -> None:
    why = bench("why_mild")
    rows = why.RUNS.read()
    assert block("docs/why_mild.md", "steps").startswith(why.steps_table(rows))
    assert block("docs/why_mild.md", "choice") == why.choice_table(rows)
    assert block("docs/why_mild.md", "curves").startswith(why.curve_table(rows))


@pytest.mark.parametrize("experts", ["synthetic", "trained"])
def test_rho_size(experts: str, bench: Bench) -> None:
    size = bench("rho_size")
    assert size.table(size.SIZES.read(), experts) == block("docs/why_mild.md", size.MARKS[experts])


def test_llm(bench: Bench) -> None:
    llm = bench("llm")
    assert llm.gap_table(llm.DATA.read()) == block("docs/verdicts.md", "gap-mmlu")
    assert llm.tally_table(llm.RUNS.read()) == block("docs/beyond.md", "llm-tally")


def test_readings(bench: Bench) -> None:
    assert block("docs/theory.md", "readings").startswith(bench("readings").table())


def test_logs(bench: Bench) -> None:
    logs = bench("logs")
    assert logs.gains_table() == block("docs/llm_routing.md", "log gains")
    assert logs.coverage_table() == block("docs/llm_routing.md", "log coverage")


def test_benchmarks(bench: Bench) -> None:
    benchmarks = bench("benchmarks")
    for mark, table in benchmarks.tables(benchmarks.RESULTS.read()).items():
        assert table == block("docs/benchmarks.md", mark)


def test_verdicts(bench: Bench) -> None:
    verdicts = bench("verdicts")
    assert verdicts.page(verdicts.RUNS.read()) == block("docs/verdicts.md", "verdicts")


def test_paper_recipe(bench: Bench) -> None:
    recipe = bench("paper_recipe")
    assert recipe.table([*recipe.unchanged(), *recipe.CHANGED.read()]) == block("docs/verdicts.md", "paper_recipe")


def test_tuned(bench: Bench) -> None:
    tuned = bench("tuned")
    assert tuned.table(tuned.TUNED.read(), tuned.ours()) == block("docs/verdicts.md", "tuned")
