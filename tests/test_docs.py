"""What the documents name must exist."""

import importlib
import re
from pathlib import Path

import pytest
import yaml

from l2d.config import check, compose
from l2d.runs.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
PAPER = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
# `src/l2d/costs.py: expert_costs` or `tests/losses/test_deferral.py: test_lemma_1`; a class's member as Class.member
REFERENCE = re.compile(r"`((?:src/l2d|tests|conf|bench)/[\w/.]+?)(?:: ([\w.]+))?`")


@pytest.mark.parametrize("reference", sorted(set(REFERENCE.findall(PAPER))), ids=":".join)
def test_paper_to_code_names_what_exists(reference: tuple[str, str]) -> None:
    file, name = reference
    assert (ROOT / file).is_file(), file
    if name.startswith("test_"):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), reference
    elif name:
        found: object = importlib.import_module(file.removeprefix("src/").removesuffix(".py").replace("/", "."))
        for attribute in name.split("."):
            found = getattr(found, attribute)


def test_paper_to_code_is_complete() -> None:
    """Every row points to code or a test, or says that there is none yet."""
    rows = [line for line in PAPER.splitlines() if line.startswith("| ") and not line.startswith("| in the paper")]
    assert len(rows) > 40
    for row in rows:
        assert REFERENCE.search(row) or "not yet" in row, row


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_ci_and_hooks_call_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    ran = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    hooked = [hook["entry"] for hook in hooks]
    assert (ran, hooked) == (["make install", "make lint", "make docs", "make test"], ["make lint", "make test-unit"])
    assert {line.removeprefix("make ") for line in [*ran, *hooked]} <= targets


QUERIES = [
    "dataset=table",
    "dataset.path=table.csv",
    "dataset.name=queries",
    "cost=columns",
]
SHOWN = {
    "README.md": [
        [],
        [
            *("dataset=table", "dataset.path=table.csv", "dataset.name=queries", "dataset.text=query"),
            *("cost=error_plus_cost", "cost.prices=[0.02,0.1,0.4]"),  # by name there: a run lists them
            *("method=cost_regression", "checkpoint=best_loss"),
        ],
    ],
    "docs/guide.md": [[*QUERIES, "dataset.text=query", "method=one_vs_all", "checkpoint=best"]],
    "docs/your_table.md": [QUERIES],
    "docs/llm_routing.md": [["dataset=mmlu_sim"]],
}


@pytest.mark.slow  # or it would catch mutations of what is hashed
@pytest.mark.parametrize("document", SHOWN)
def test_documents_name_the_folders_that_runs_have(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    wanted = {str(RunFolder.of(check(compose(overrides)).plain).path) for overrides in SHOWN[document]}
    found = {path.rstrip("`") for path in re.findall(r"runs/\w+/\w+/\w+/\w+/\w+/[0-9a-f]{8}/seed=\d+", text)}
    assert found == wanted
