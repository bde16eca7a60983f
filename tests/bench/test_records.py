"""Rows of finished runs, and their figures in the documents."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.metrics_example import example_metrics

from l2d.config import check, compose

Bench = Callable[[str], ModuleType]
DOCUMENT = "before\n<!-- one -->\nold\nlines\n<!-- /one -->\nbetween\n<!-- two -->\nkept\n<!-- /two -->\nafter\n"
ROWS = [
    {"dataset": "svhn", "seed": "1", "test": "0.2", "n": "1000", "machine": "M", "torch": "2.0", "commit": "b"},
    {"dataset": "svhn", "seed": "0", "test": "0.1", "n": "1000", "machine": "M", "torch": "2.0", "commit": "a"},
]


def test_put_replaces_what_is_between_the_marks(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "document.md"
    file.write_text(DOCUMENT)
    bench("records").put(file, "one", r"new \1 $x")
    assert file.read_text() == DOCUMENT.replace("old\nlines", r"new \1 $x")
    with pytest.raises(SystemExit, match="three"):
        bench("records").put(file, "three", "new")


def test_rows_are_written_sorted_and_read_back(bench: Bench, tmp_path: Path) -> None:
    """The last of several rows with the same keys counts."""
    records = bench("records")
    results = records.Results(tmp_path / "rows", "dataset seed", "test n machine torch commit")
    assert results.read() == []
    again = ROWS[0] | {"test": "0.3"}
    results.write([*ROWS, again])
    assert results.read() == [ROWS[1], again]
    same, other = (ROWS[0] | {"test": test, "commit": "later"} for test in ("0.2", "0.25"))
    compared = records.Results(tmp_path / "rows", "dataset seed", "test n machine torch commit", compared="test")
    compared.write(ROWS)
    compared.add([same])
    assert compared.read() == ROWS[::-1]
    compared.add([other])
    assert compared.read() == [ROWS[1], other]


def test_figures(bench: Bench) -> None:
    """The standard deviation of 0.1, 0.2, 0.3 is 0.1. The mean of the differences 0.1, 0.3 is 0.2, the standard error 0.1 and
    Student's t with one degree of freedom 12.706."""
    records = bench("records")
    assert records.shown([0.1, 0.2, 0.3]) == "0.2000 ± 0.1000"
    assert records.shown([0.1]) == "0.1000 (1)"
    assert records.shown([]) == "missing"
    assert records.by_seed(ROWS, "test") == {1: 0.2, 0: 0.1}
    assert records.difference({0: 0.2, 1: 0.5, 2: 9.0}, {0: 0.1, 1: 0.2}) == "+0.2000 [-1.0706, +1.4706]"
    assert records.difference({0: 0.2}, {1: 0.2}) == ""
    foot = bench("records").foot(ROWS)
    for part in ("2 runs", "SVHN 1,000", "M, torch 2.0", "commit a, b"):
        assert part in foot


def test_finished_runs_are_read_off_their_folders(bench: Bench, tmp_path: Path) -> None:
    config = {**check(compose([])).plain}
    for seed in (0, 1):
        folder = tmp_path / "digits" / "III" / "synthetic" / "error" / "mild" / "0123abcd" / f"seed={seed}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config | {"seed": seed}))
        (folder / "timing.json").write_text('{"device": "cpu", "torch": "2.0"}')
    (folder / "metrics.json").write_text(json.dumps(example_metrics(loss=0.25).as_json()))
    [(found, read, metrics, timing)] = bench("records").finished(tmp_path)
    assert (found, read["seed"], timing["device"]) == (folder, 1, "cpu")
    scores = {"validation": "0.375000", "test": "0.250000", "guarded": "0.250000", "constant": ""}
    assert bench("records").scores_of(metrics) == scores
    assert bench("records").cell_of(read)["setup"] == "III"


@pytest.mark.slow
def test_usual_is_what_the_overrides_compose(bench: Bench) -> None:
    usual = bench("records").usual
    said = ["setup=I", "method=tdef"]
    config = check(compose([*said, "seed=7", "runs_dir=elsewhere"])).plain
    assert usual(config, said)
    assert not usual(config, ["setup=I"])
    assert usual(config, ["setup=I"], free=["method"])
    assert not usual(check(compose([*said, "recipe.epochs=1"])).plain, said)
    assert not usual(config, ["setup=no_longer_there"])
