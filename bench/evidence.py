"""Every generated table of the documents, from the files of bench/results: `make evidence`. Nothing is measured.

python bench/evidence.py    # rewrites the tables, and the figure of docs/beyond.md
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import records
from records import DOCS

# A script, what makes the table of it, and the document and the mark where it stands.
TABLES: list[tuple[str, Callable[[Any], str], str, str]] = [
    ("guard", lambda it: it.table(it.DRAWN.read()), "beyond", "guard-errs"),
    ("budget", lambda it: it.table(it.POINTS.read()), "llm_routing", "budget"),
    ("serve", lambda it: it.table(it.RESULTS.read()), "serving", "serve-speed"),
    ("trial", lambda it: it.table(it.RESULTS.read()), "serving", "trial"),
    ("sweeps", lambda it: it.reached_table(), "speed", "reached"),
    ("sweeps", lambda it: it.sweeps_table(), "speed", "sweeps"),
    ("rows", lambda it: it.table(it.LARGE.read()), "speed", "large"),
    ("soak", lambda it: it.table(it.RESULTS.read()), "speed", "soak"),
    ("large", lambda it: it.table(it.RESULTS.read()), "scaling", "large"),
    ("startup", lambda it: it.table(records.read(it.RESULTS)), "speed", "startup"),
    ("digits", lambda it: it.table(records.read(it.RESULTS)), "digits", "bench-digits"),
    ("why_mild", lambda it: it.steps(), "why_mild", "steps"),
    ("why_mild", lambda it: it.choice(), "why_mild", "choice"),
    ("why_mild", lambda it: it.collapse(it.BARE.read()), "why_mild", "collapse"),
    ("why_mild", lambda it: it.sizes_table("synthetic"), "why_mild", "mass"),
    ("why_mild", lambda it: it.sizes_table("trained"), "why_mild", "mass-trained"),
    ("readings", lambda it: it.page(), "theory", "readings"),
    ("llm", lambda it: it.trios_table(it.RUNS.read()), "verdicts", "trios"),
    ("llm", lambda it: it.gap_table(it.DATA.read()), "verdicts", "gap-mmlu"),
    ("llm", lambda it: it.curves_table(it.CURVES.read()), "verdicts", "curves-mmlu"),
    ("llm", lambda it: it.tally_table(it.RUNS.read()), "beyond", "llm-tally"),
    ("logs", lambda it: it.gains_table(), "llm_routing", "log gains"),
    ("logs", lambda it: it.coverage_line(), "llm_routing", "log coverage"),
    ("auto", lambda it: it.table(it.RESULTS.read()), "benchmarks", "auto"),
    ("confounding", lambda it: it.table(it.RESULTS.read()), "llm_routing", "confounding"),
    ("plans", lambda it: it.pools_table(it.RESULTS.read()), "plans", "plans"),
    ("plans", lambda it: it.drawn_table(it.RESULTS.read()), "plans", "plans-drawn"),
    ("promises", lambda it: it.new_table(it.RESULTS.read()), "promises", "new"),
    ("promises", lambda it: it.error_table(it.RESULTS.read()), "promises", "error"),
    ("team", lambda it: it.capacity_table(it.RESULTS.read()), "promises", "capacity"),
    ("team", lambda it: it.colleagues_table(it.RESULTS.read()), "promises", "colleagues"),
    ("people", lambda it: it.table(it.RESULTS.read()), "human_experts", "people"),
    ("paper_recipe", lambda it: it.sizes_table([*it.unchanged(), *it.CHANGED.read()]), "verdicts", "paper_sizes"),
    ("paper_recipe", lambda it: it.parts_table([*it.unchanged(), *it.CHANGED.read()]), "verdicts", "paper_recipe"),
    ("tuned", lambda it: it.table(it.TUNED.read(), records.paper_runs(recipe="fast")), "verdicts", "tuned"),
    ("beyond", lambda it: it.losses_table(), "beyond", "images"),
    ("beyond", lambda it: it.tally_table(), "beyond", "images-tally"),
    ("beyond", lambda it: it.weights_table(), "beyond", "weights"),
    ("benchmarks", lambda it: it.split_table(it.of("routerdc"), it.PUBLISHED), "benchmarks", "routerdc"),
    ("benchmarks", lambda it: it.split_table(it.of("llmrouter"), {}), "benchmarks", "llmrouter"),
    ("benchmarks", lambda it: it.trios_table(it.of("mmlu")), "benchmarks", "mmlu-trios"),
    ("speed", lambda it: it.speed_table(), "speed", "speed"),
    ("speed", lambda it: it.start_table(), "speed", "start"),
    ("speed", lambda it: it.memory_table(), "speed", "memory"),
]


def tables() -> Iterator[tuple[str, str, str]]:
    """The document, the mark and the text of each."""
    for script, make, document, mark in TABLES:
        yield document, mark, make(import_module(script))
    for mark, text in import_module("verdicts").parts().items():
        yield "verdicts", mark, text


if __name__ == "__main__":
    for document, mark, text in tables():
        records.put(DOCS / f"{document}.md", mark, text)
    import_module("beyond").figure().savefig(DOCS / "figures" / "beyond_images.png", dpi=110)
