"""Figures worked out by hand on a few rows."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Bench = Callable[[str], ModuleType]


@pytest.mark.full
def test_a_process_is_measured(bench: Bench, tmp_path: Path) -> None:
    startup = bench("startup")
    code = "import time; text = b'x' * (100 << 20); time.sleep(1); print('done')"
    seconds, cpu, memory, text = startup.run(startup.Case("", ("python", "-c", code)), tmp_path)
    assert (seconds > cpu + 0.5 > 0.5, memory > 100, text) == (True, True, "done\n")
    with pytest.raises(SystemExit, match="status 3, not 0"):
        startup.run(startup.Case("", ("python", "-c", "raise SystemExit(3)")), tmp_path)


def test_startup(bench: Bench) -> None:
    known = {"n": "3", "machine": "M", "versions": "V", "commit": "C"}
    row = {"what": "help", "command": "l2d --help", "seconds": "0.11", "torch": "no", **known}
    row |= {"cpu_seconds": "0.10", "memory_mib": "14"}
    table = bench("startup").table([row])
    assert "| help | `l2d --help` | 0.11 | 0.10 | 14 MiB | no |" in table
    assert table.endswith("n = 3 fresh processes each; M; V; commit C.")


def test_oracle_if_the_others_guessed(bench: Bench) -> None:
    """The strong model errs on half of the rows; two others that guess among four answers leave (3/4)² of that."""
    import torch

    errors = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    found = {name: float(value) for name, value in bench("llm").guessing(errors).items()}
    assert found == {"strong_error": 0.5, "oracle_error": 0.25, "guessing_error": pytest.approx(0.28125)}
