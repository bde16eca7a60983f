"""Each script of bench/ can be imported, and says what it is for."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(file.stem for file in (ROOT / "bench").glob("*.py"))
# main, and then one of the ways to read arguments
READS_ARGUMENTS = re.compile(r"^def main\(.*(parse_args\(\)|collect_or_docs\(__doc__\))", re.DOTALL | re.MULTILINE)
PARSES = [
    name for name in SCRIPTS if READS_ARGUMENTS.search((ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8"))
]
Bench = Callable[[str], ModuleType]


def test_most_scripts_take_arguments() -> None:
    some = {
        "beyond",
        "experts",
        "latency",
        "llm",
        "sharing",
        "speed",
        "startup",
        "tables",
        "tuned",
        "variants",
        "why_mild",
    }
    assert some <= {*PARSES}


@pytest.mark.parametrize("name", SCRIPTS)
def test_imports(name: str, bench: Bench) -> None:
    assert bench(name).__doc__


@pytest.mark.parametrize("name", PARSES)
def test_help(name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", [f"bench/{name}.py", "--help"])
    with pytest.raises(SystemExit) as left:
        bench(name).main()
    assert left.value.code == 0
    assert re.search(rf"usage: {name}\.py", capsys.readouterr().out)
