"""metrics.json: its keys and types, a round trip, and what is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.metrics_example import example_metrics, example_score

from l2d.core.results import SCHEMA_VERSION, CategoryScore, DecisionLosses, ExtremeShares, RunMetrics, read_metrics
from l2d.utils.errors import L2DError
from l2d.utils.files import write_json

SCORE = {"deferral_loss": float, "error_rate": float, "mean_price": float, "ratios": [float], "standard_error": float}
BASELINES = ("oracle", "best_single", "random", "majority", "nearest_neighbours", "category_table")
CAPABILITIES = ("takes_prices_later", "has_posterior", "estimates_costs", "needs_labels", "reads_text")
EVIDENCE = {"best_constant": str, "gain": float, "standard_error": float}
# What a reader of metrics.json may rely on. A change here is a new SCHEMA_VERSION.
SCHEMA: dict[str, Any] = {
    **SCORE,
    "baselines": dict.fromkeys(BASELINES, SCORE),
    "confusion": [[int]],
    "collapsed_expert": int,
    "prices": [float],
    "experts": [{"name": str, "error_rate": float, "price": float, "standard_error": float}],
    "schema_version": int,
    "capabilities": dict.fromkeys(CAPABILITIES, bool),
    "evaluation": str,
    "validation": SCORE,
    "guarded": {**SCORE, "constant": str, "offsets": [float], "validation": EVIDENCE, "test": EVIDENCE},
    "decision": str,
    "method_buffers": {"rho": [float], "reward_scale": float},
    "rows": {"train": int, "validation": int, "test": int},
    "checkpoint": str,
    "epochs": int,
    "kept_epoch": int,
    "by_category": {"law": {"rows": int, "deferral_loss": float, "best_single": float, "oracle": float}},
    "by_decision": {"argmax": {"validation": float, "test": float}, "posterior": {"validation": float, "test": float}},
    "calibration": [[float]],
    "extreme": {"expert": str, "prices": [float], "target": float, "share_train": float, "share_test": float},
}
ONLY_SOME_HAVE = {"by_category", "by_decision", "calibration", "extreme"}


def full() -> RunMetrics:
    losses = DecisionLosses(validation=0.25, test=0.5)
    found = example_metrics(
        collapsed_expert=1,
        by_category={"law": CategoryScore(rows=4, deferral_loss=0.25, best_single=0.5, oracle=0.125)},
        by_decision={"argmax": losses, "posterior": losses},
        calibration=[[0.5, 0.25, 0.125]],
        extreme=ExtremeShares("expert 1", [0.0, 0.3], target=0.95, share_train=0.94, share_test=0.9),
    )
    guarded = replace(found.guarded, constant="expert 2", offsets=[0.1, -0.1])
    one = example_score(0.25, [1.0, 0.0])
    simple = replace(found.baselines, nearest_neighbours=one, category_table=one)
    return replace(found, guarded=guarded, baselines=simple)


def schema_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: schema_of(item) for key, item in value.items()}
    return [schema_of(value[0])] if isinstance(value, list) else type(value)


def written(tmp_path: Path, content: Any) -> Path:
    file = tmp_path / "metrics.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_keys_and_types() -> None:
    assert schema_of(json.loads(json.dumps(full().as_json()))) == SCHEMA
    assert example_metrics().as_json().keys() == SCHEMA.keys() - ONLY_SOME_HAVE
    assert example_metrics(method_buffers={"rho": [1, 2.5]}).rho == [1.0, 2.5]
    assert example_metrics(method_buffers={}).rho == []


@pytest.mark.parametrize("metrics", [full(), example_metrics(), example_metrics(0.1 + 0.2, p=3)])
def test_round_trip_to_the_byte(metrics: RunMetrics, tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write_json(one, metrics.as_json())
    assert read_metrics(one) == metrics
    write_json(other, read_metrics(one).as_json())
    assert one.read_bytes() == other.read_bytes()


def changed(**changes: Any) -> dict[str, Any]:
    return full().as_json() | changes


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ('{"deferral_loss": ', ""),
        (json.dumps(full().as_json()).replace("0.25", "NaN", 1), "deferral_loss"),
        (changed(deferral_loss="0.25"), "deferral_loss"),
        (changed(surprise=1), "surprise"),
        (changed(rows={"train": 1, "validation": 1, "test": 1, "more": 1}), "rows.more"),
        ({key: value for key, value in full().as_json().items() if key != "guarded"}, "guarded"),
    ],
)
def test_a_damaged_file_is_refused(content: Any, key: str, tmp_path: Path) -> None:
    file = written(tmp_path, content)
    with pytest.raises(L2DError) as refused:
        read_metrics(file)
    message = str(refused.value)
    assert message.startswith(f"{file}: ")
    assert [key in message, "force=true" in message, "\n" in message] == [True, True, False]


@pytest.mark.parametrize(("version", "shown"), [(SCHEMA_VERSION + 1, "7"), ("6", "6"), (None, "none")])
def test_another_version_is_refused(version: Any, shown: str, tmp_path: Path) -> None:
    """Whatever else is in it: other keys are to be expected there."""
    content = {"schema_version": version, "another": "key"} if version is not None else {"deferral_loss": 0.5}
    with pytest.raises(L2DError, match=f"schema_version {shown}.* {SCHEMA_VERSION}.*force=true"):
        read_metrics(written(tmp_path, content))


def test_reading_needs_no_torch() -> None:
    code = "import sys; from l2d.core.results import RunMetrics, adapter; adapter(RunMetrics); print({'torch', 'numpy'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
