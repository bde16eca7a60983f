"""What would settle a verdict, by hand."""

from dataclasses import replace

import pytest
from tests.metrics_example import example_metrics

from l2d.core.results import Estimate, GuardEvidence, LoggedOutcomes, OffPolicyValue, RowCounts, RunMetrics
from l2d.runs.summary import format_table, overlap_lines, rounded, settled_by

HALF = Estimate(0.5, 0.1)
VALUE = OffPolicyValue(HALF, HALF, HALF)
LOG = LoggedOutcomes(
    asked=[0.5, 0.5],
    propensities="estimated",
    policy=HALF,
    router=VALUE,
    guarded=VALUE,
    best_single=VALUE,
    effective_rows=[412.4, 38.6],
    rare=0.031,
    flip_strength=1.44,
    explored_deviation=2.0,
    rows_per_day=100.0,
)


def metrics(
    gain: float, error: float | None, constant: str | None = None, log: LoggedOutcomes | None = None
) -> RunMetrics:
    seen = GuardEvidence("expert 1", gain, error)
    found = example_metrics(rows=RowCounts(1_000, 1_000, 1_000), evaluation="cross_validate", log=log)
    return replace(found, guarded=replace(found.guarded, constant=constant, validation=seen, test=seen))


@pytest.mark.parametrize(
    ("count", "shown"), [(0.2, "1"), (10.4, "11"), (3_000.0, "3,000"), (1_234.5, "1,200"), (98_765, "99,000")]
)
def test_rounded(count: float, shown: str) -> None:
    assert rounded(count) == shown


def test_an_unclear_verdict_names_the_rows() -> None:
    """± 1.96·.02 is twice the gain: four times the rows halve it. Of these 4,000, 1,000 are there. Decisions: (1.96·2/.0196)² = 40,000, of which 100 come a day."""
    found = metrics(0.0196, 0.02)
    assert "3,000" in settled_by(found)
    assert settled_by(found) in format_table(found)
    text = settled_by(metrics(0.0196, 0.02, log=LOG))
    assert all(number in text for number in ("3,000", "40,000", " 400 days", "--explore 0.1"))
    assert "days" not in settled_by(metrics(0.0196, 0.02, log=replace(LOG, rows_per_day=None)))
    assert "100 times" in settled_by(metrics(0.0001, 0.02))


@pytest.mark.parametrize(
    ("gain", "error", "constant"),
    [(0.1, 0.02, None), (-0.1, 0.02, None), (0.0, 0.02, None), (0.1, None, None), (-0.01, 0.02, "expert 1")],
)
def test_nothing_is_left_to_settle(gain: float, error: float | None, constant: str | None) -> None:
    """The interval excludes 0, no number of rows follows, or the router costs more where everything goes to one expert."""
    assert settled_by(metrics(gain, error, constant)) == ""


def test_a_hopeful_fallback_names_the_rows() -> None:
    assert "3,000" in settled_by(metrics(0.0196, 0.02, "expert 1"))


def test_overlap_and_sensitivity() -> None:
    overlap, sensitivity = overlap_lines(metrics(0.1, 0.02), LOG)
    assert all(shown in overlap for shown in ("expert 1 412", "expert 2 39", "3.1%"))
    assert "×1.44" in sensitivity
    assert "expert 1" in overlap_lines(metrics(0.1, 0.02, "expert 1"), LOG)[1]
    for certain in (replace(LOG, flip_strength=1.0, rare=None), replace(LOG, propensities="given")):
        assert len(overlap_lines(metrics(0.1, 0.02), certain)) == 1
