"""`python -m l2d …` and `python -m l2d.train …`."""

import runpy
import sys

import pytest

from l2d.commands import main as commands


@pytest.mark.parametrize(("module", "before"), [("l2d.__main__", ()), ("l2d.train", ("train",))])
def test_what_is_typed_after_a_module_is_the_commands(
    module: str, before: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(commands, "console", lambda *words: asked.append(words))
    monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_module(module, run_name="__main__")
    assert asked == [before]
