"""`python -m l2d …`."""

import runpy
import sys

import pytest

from l2d.commands import main as commands


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(commands, "console", lambda *words: asked.append(words))
    monkeypatch.delitem(sys.modules, "l2d.__main__", raising=False)
    runpy.run_module("l2d.__main__", run_name="__main__")
    assert asked == [()]
