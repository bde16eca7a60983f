"""The examples in the docstrings of the public API run."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.full
@pytest.mark.parametrize("module", ["functional", "api.fit", "api.estimator"])
def test_examples(module: str) -> None:
    failed, tried = doctest.testmod(import_module(f"l2d.{module}"))
    assert tried > 2
    assert not failed
