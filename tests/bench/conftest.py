from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script of bench/, as a module."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is put back: bench/serve.py sets it
    return import_module
