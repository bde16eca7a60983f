"""Bars only where somebody is looking."""

import io
import sys

import pytest

from l2d.lightning.progress import is_watched


def test_only_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not is_watched()
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "ipykernel", sys)
        assert is_watched()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert is_watched()
