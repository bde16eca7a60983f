"""The documents name what exists: code, tests, files, make targets, keys."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from l2d.config import check, compose

ROOT = Path(__file__).resolve().parent.parent
PAPER = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
# `src/l2d/core/rho.py: build_rho` or `tests/losses/test_deferral.py: test_lemma_1`; a class's member as Class.member
REFERENCE = re.compile(r"`((?:src/l2d|tests|conf|bench|examples)/[\w/.]+?)(?:: ([\w.]+))?`")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.stem)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize(
    "file", ["README.md", "CONTRIBUTING.md", "docs/index.md", ".github/workflows/ci.yml", ".pre-commit-config.yaml"]
)
def test_make_targets_exist(file: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = re.findall(
        r"^(?: {4}|\s*(?:- )?(?:run|entry): )?make ([a-z-]+)", (ROOT / file).read_text(), re.MULTILINE
    )
    assert commands
    assert set(commands) <= targets


@pytest.mark.full
def test_the_code_of_the_page_of_plans(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "plans.md").read_text(), re.MULTILINE | re.DOTALL)
    known: dict[str, Any] = {}
    exec(compile(block, "plans.md", "exec"), known)
    assert "better than the best single expert" in capsys.readouterr().out
    assert len(known["step"].asked) > 1
    assert known["step"].accept in known["step"].asked


@pytest.mark.full
def test_the_code_of_the_page_of_teams() -> None:
    text = (ROOT / "docs" / "people_team.md").read_text()
    known: dict[str, Any] = {}
    exec(compile("\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)), "people_team.md", "exec"), known)
    assert known["shares"] == {"ann": 130, "bob": 170, "chen": 0}
    assert known["careful"].operating_point.error < 0.1
    assert known["bigger"].experts == ("ann", "bob", "chen", "dora")


@pytest.mark.full
@pytest.mark.parametrize("page", ["guide", "your_table", "llm_routing", "plans", "scaling"])
def test_commands_of_the_pages_compose(page: str) -> None:
    """They are checked and not run: some train for hours."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for line in re.findall(r"^ {4}(l2d train .*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)[2:]
        if "-m" not in words and not words[0].startswith("-"):
            check(compose(words))
