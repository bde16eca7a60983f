"""Logs in which a tenant decided who was asked, with a known truth."""

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.mark.full
def test_the_value_of_each_model_in_a_confounded_log(bench: Callable[[str], ModuleType]) -> None:
    """Simulated. Without the tenant the intervals miss the truth of the small and the large model; with it they cover."""
    script = bench("confounding")
    rows = [row for seed in range(4) for row in script.of_a_log("both", 1_000, seed)]
    inside = script.coverage(rows)
    assert inside["the text and the tenant"] > 0.85
    assert inside["given"] > 0.85
    assert inside["the text alone"] < 0.6


def test_the_best_model_is_counted_where_it_is_clear(bench: Callable[[str], ModuleType]) -> None:
    """By hand: a is truly best by .2; two standard errors of the difference are .14 in the first log, .28 in the second."""
    rows = [
        {"log": log, "model": model, "value": value, "true": true, "error": error}
        for log, error, values in (
            ("0", "0.05", ("0.3", "0.2")),
            ("1", "0.1", ("0.1", "0.2")),
            ("2", "0.05", ("0.1", "0.2")),
        )
        for model, value, true in zip("ab", values, ("0.2", "0.4"), strict=True)
    ]
    assert bench("confounding").named_right(rows) == (1, 2)
