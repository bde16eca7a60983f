"""Tables in the documents are what bench/ makes of its CSV files: none was typed."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
Bench = Callable[[str], ModuleType]


def block(document: str, mark: str) -> str:
    """What is between the marks."""
    text = (ROOT / document).read_text(encoding="utf-8")
    [found] = re.findall(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    return str(found)


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize(
    "mark", ["speed", "reached", "sweeps", "start", "memory", "kernels", "variants", "small", "large"]
)
def test_speed(mark: str, bench: Bench) -> None:
    docs = bench("speed_docs")
    by: dict[str, list[dict[str, str]]] = {}
    for row in docs.read(docs.RESULTS / "speed.csv"):
        by.setdefault(row["what"], []).append(row)
    assert docs.PARTS[mark](by) == block("docs/speed.md", mark)


def test_sharing(bench: Bench) -> None:
    assert bench("speed_docs").sharing({}) == block("docs/scaling.md", "sharing")


def test_startup(bench: Bench) -> None:
    startup = bench("startup")
    assert startup.table(bench("records").read(startup.RESULTS)) == block("docs/speed.md", "startup")


def test_experts(bench: Bench) -> None:
    experts = bench("experts")
    assert experts.table(bench("records").read(experts.CSV)) == block("docs/results.md", "experts")


def test_digits(bench: Bench) -> None:
    digits = bench("digits")
    assert digits.markdown(digits.read()) == block("docs/digits.md", "bench-digits")


def test_latency(bench: Bench) -> None:
    latency = bench("latency")
    assert latency.table(latency.read(latency.RESULTS)) == block("docs/llm_routing.md", "latency")


def test_serve(bench: Bench) -> None:
    serve = bench("serve")
    assert serve.table(bench("records").read(serve.RESULTS)) == block("docs/serving.md", "serve-speed")


def test_guard(bench: Bench) -> None:
    guard = bench("guard")
    assert guard.table(bench("records").read(guard.CSV)) == block("docs/beyond.md", "guard-errs")


def test_beyond(bench: Bench) -> None:
    beyond, read = bench("beyond"), bench("records").read
    rows = read(beyond.CSV)
    rows += beyond.others(rows, read(beyond.WHY))
    assert beyond.tally_table(rows) == block("docs/beyond.md", "images-tally")
    assert beyond.first_table(rows) == block("docs/beyond.md", "first")
    assert block("docs/beyond.md", "images").endswith(beyond.table(rows))


def test_why_mild(bench: Bench) -> None:
    why, read = bench("why_mild"), bench("records").read
    rows = read(why.CSV)
    assert block("docs/why_mild.md", "steps").startswith(why.steps_table(rows))
    assert block("docs/why_mild.md", "choice").startswith(why.choice_table(rows))
    assert why.curve_table(rows) in block("docs/why_mild.md", "curves")


@pytest.mark.parametrize("experts", ["synthetic", "trained"])
def test_rho_size(experts: str, bench: Bench) -> None:
    size = bench("rho_size")
    rows = bench("records").read(size.CSV)
    assert size.table(rows, experts) == block("docs/why_mild.md", size.MARKS[experts])


def test_llm(bench: Bench) -> None:
    llm, read = bench("llm"), bench("records").read
    rows, data = read(llm.CSV), read(llm.DATA)
    assert llm.gap_table(data) == block("docs/results.md", "gap-mmlu")
    assert llm.levels_table(rows, data) == block("docs/beyond.md", "llm-levels")
    assert llm.tally_table(rows) == block("docs/beyond.md", "llm-tally")


def test_logs(bench: Bench) -> None:
    assert bench("logs").coverage_table() == block("docs/llm_routing.md", "log coverage")


def test_benchmarks(bench: Bench) -> None:
    benchmarks, read = bench("benchmarks"), bench("records").read
    for mark, table in benchmarks.tables(read(benchmarks.CSV)).items():
        assert table == block("docs/benchmarks.md", mark)


def test_verdicts(bench: Bench) -> None:
    verdicts = bench("verdicts")
    rows = bench("records").read(verdicts.CSV)
    made = f"{verdicts.verdicts_page(verdicts.measured(rows), verdicts.titles())}\n{verdicts.foot(rows)}"
    assert made == block("docs/verdicts.md", "verdicts")


def test_paper_recipe(bench: Bench) -> None:
    recipe = bench("paper_recipe")
    rows = [*recipe.unchanged(), *bench("records").read(recipe.CSV)]
    assert recipe.table(rows) == block("docs/verdicts.md", "paper_recipe")


def test_budget(bench: Bench) -> None:
    budget = bench("budget")
    assert budget.table(bench("records").read(budget.CSV)) == block("docs/llm_routing.md", "budget")


def test_tuned(bench: Bench) -> None:
    tuned = bench("tuned")
    assert tuned.table(bench("records").read(tuned.CSV), tuned.ours()) == block("docs/verdicts.md", "tuned")
