"""What is read of a run for its bound."""

from pathlib import Path
from typing import Any

import pytest

from l2d.analysis.theory import linear_router
from l2d.runs.folder import RunFolder


class Told(Exception):
    pass


def test_no_table_is_written_and_every_row_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the run's config says; data that were moved are looked for where they are now."""
    found: dict[str, Any] = {}

    def noted(config: dict[str, Any], trust: tuple[str, ...]) -> None:
        found.update(config, trust=trust)
        raise Told

    saved = {"experts": {"table": "mine.csv", "seed": 1}, "sampling": "over", "data_dir": "a"}
    monkeypatch.setattr(RunFolder, "config", lambda _: dict(saved))
    monkeypatch.setattr(linear_router, "check", noted)
    with pytest.raises(Told):
        linear_router.load_linear_router(tmp_path, {"data_dir": "b"}, ("mine",))
    changed = {"experts": {"table": None, "seed": 1}, "sampling": "none", "data_dir": "b"}
    assert found == {**changed, "trust": ("mine",)}
