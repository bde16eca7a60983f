"""The documentation site: the reference names all there is, links and equations hold, and the whole builds without a warning."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest
import yaml

from l2d.commands.main import COMMANDS
from l2d.config import CONF, SearchSettings, Settings, groups, launchers
from l2d.core import results
from l2d.core.results import RunMetrics
from tests.test_layering import FLOORS, ROOMS

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
DOCS = ROOT / "docs"
NOT_SHOWN = {"name", "_target_", "_partial_", "about", "defaults", "hydra"}


@cache
def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@cache
def generated(name: str) -> str:
    return str(script("reference").PARTS[name]())


def keys_of(content: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict) and value and key not in NOT_SHOWN:
            yield from keys_of(value, f"{prefix}{key}.")
        elif key not in NOT_SHOWN:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("group", [group for group in groups() if group != "experiment"])
def test_the_reference_names_every_choice_and_key_of(group: str) -> None:
    page = generated("configuration")
    assert f"\n## {group}\n" in page
    for choice, meaning in groups()[group].items():
        assert f"| `{group}={choice}` | {script('reference').cell(meaning)} |" in page
        content = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text(encoding="utf-8"))
        for key in keys_of(content, f"{group}."):
            row = next((line for line in page.splitlines() if line.startswith(f"| `{key}` |")), "")
            assert row, f"{choice}: {key}"


def test_the_reference_names_experiments_launchers_and_settings() -> None:
    page = generated("configuration")
    for experiment in groups()["experiment"]:
        assert f"| `experiment={experiment}` |" in page
    for launcher in launchers():
        assert f"| `hydra/launcher={launcher}` |" in page
    for field in fields(Settings):
        assert f"| `{field.name}` |" in page
    for field in fields(SearchSettings):
        assert f"| `tune.{field.name}` |" in page


def test_a_key_has_its_type_and_its_value() -> None:
    rows = generated("configuration").splitlines()
    [gamma] = [row for row in rows if row.startswith("| `method.gamma` |")]
    assert gamma == "| `method.gamma` | number ≥ 0 |  | `2.0` |"
    assert any(row.startswith("| `method.rho.rule` | `uniform` or `theory` |") for row in rows)
    [beta] = [row for row in rows if row.startswith("| `method.beta` |")]
    assert beta.endswith("| `1.0` | `0.999` | `1.0` |")  # ce, class_balanced, cwce: the second extends the third


def test_the_reference_has_the_help_of_every_command() -> None:
    page = generated("commands")
    for name in COMMANDS:
        assert f"\n## l2d {name}\n" in f"\n{page}"
        assert f"usage: l2d {name}" in page


def test_the_reference_has_every_key_of_metrics_json() -> None:
    page = generated("metrics")
    for field in fields(RunMetrics):
        assert f"\n| `{field.name}` |" in page.split("\n## ")[0], field.name
    for name, kind in vars(results).items():
        if hasattr(kind, "__dataclass_fields__") and name != "RoutingMetrics":  # whose fields RunMetrics has
            assert f"## {name}\n" in page, name


def test_the_house_has_every_room() -> None:
    assert sorted(re.findall(r'class="room">(\w+)<', generated("house"))) == sorted([*ROOMS, "l2d"])
    shown = re.findall(r"^\| \d+ \| `(\w+)/` \|", generated("rooms"), re.MULTILINE)
    assert shown == [room for floor in reversed(FLOORS) for room in floor]


def test_every_method_has_its_place_among_the_equations() -> None:
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    named = [
        name
        for marked in re.findall(r"^<!-- generated: methods (.*) -->$", text, re.MULTILINE)
        for name in marked.split()
    ]
    assert sorted(named) == sorted(groups()["method"])


def test_marks_name_parts() -> None:
    reference = script("reference")
    for page in DOCS.rglob("*.md"):
        for name, _ in reference.MARK.findall(page.read_text(encoding="utf-8")):
            assert name in reference.PARTS, page


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        ("digits.md", "[`llama`](../conf/setup/llama.yaml)", "`llama` (`conf/setup/llama.yaml`)"),
        ("digits.md", "[`conf/setup/llama.yaml`](../conf/setup/llama.yaml)", "`conf/setup/llama.yaml`"),
        ("beyond.md", "[the README](../README.md#methods)", "[the README](index.md)"),
        ("house.md", "[rules](../CONTRIBUTING.md#rules)", "[rules](contributing.md#rules)"),
        ("contributing.md", "[speed](docs/speed.md)", "[speed](speed.md)"),
        ("reference/index.md", "[why](docs:why_mild.md)", "[why](../why_mild.md)"),
        ("index.md", "[web](https://example.org/a)", "[web](https://example.org/a)"),
    ],
)
def test_links(page: str, link: str, shown: str) -> None:
    hooks = script("hooks")
    folder = PurePosixPath(".") if page in hooks.PAGES.values() else PurePosixPath("docs", page).parent
    found = hooks.LINK.fullmatch(link)
    assert found is not None
    assert hooks.relink(found, folder, page) == shown


def test_equations_become_mathml_and_unknown_commands_are_refused() -> None:
    hooks = script("hooks")
    text = '<p>If <span class="arithmatex">\\(c_k &lt; 1\\)</span></p>'
    page = type("Page", (), {"file": type("File", (), {"src_uri": "x.md"})})
    made = hooks.on_page_content(text, page=page)
    assert "<msub><mi>c</mi><mi>k</mi></msub>" in made
    assert "arithmatex" not in made
    with pytest.raises(Exception, match=r"x\.md.*\\nosuch"):
        hooks.equation(True, "\\[\\nosuch x\\]", "x.md")


@pytest.mark.full
@pytest.mark.measured
def test_the_run_folder_is_as_the_reference_says(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert command().returncode == 0
    [metrics] = tmp_path.rglob("metrics.json")
    there = {
        f"{file.name}/" if file.is_dir() else file.name for file in metrics.parent.iterdir() if file.name[0] != "."
    }
    text = (DOCS / "reference" / "run_folder.md").read_text(encoding="utf-8").split("Beside the run folders")[0]
    rows = dict(re.findall(r"^\| `([\w./]+)` \| (.*) \|$", text, re.MULTILINE))
    assert there == {name for name, meaning in rows.items() if not meaning.startswith("only ")}
    [example] = re.findall(
        r"^```python\n(.*?)^```$", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    read = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert read.stdout.startswith(str(metrics.parent.relative_to(tmp_path)))


@pytest.mark.full
@pytest.mark.skipif(not SITE.is_dir(), reason="make docs builds it")
def test_the_site_needs_no_network() -> None:
    for page in ("index", "methods", "house", "contributing", "reference/configuration", "tutorials/add_a_loss"):
        assert (SITE / f"{page}.html").is_file(), page
    found = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any("method.rho.offset" in entry["text"] for entry in found)
    assert (SITE / "search" / "search_index.js").is_file()  # the same for file://
    assert "<math" in (SITE / "methods.html").read_text(encoding="utf-8")
    outside = re.compile(r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//|<link[^>]* href=\"?(?:https?:)?//")
    for page_file in SITE.rglob("*.html"):
        assert not outside.search(page_file.read_text(encoding="utf-8")), page_file
