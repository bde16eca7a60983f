"""Each script of bench/ can be imported."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = sorted(file.stem for file in (Path(__file__).resolve().parents[2] / "bench").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_imports(name: str, bench: Callable[[str], ModuleType]) -> None:
    assert bench(name).__name__ == name
