"""`l2d log export`: columns that only some readers take. What it leaves out is tested in tests/logs/test_outcome_log.py."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from l2d.assembly.make import make_dataset
from l2d.commands.log import main
from l2d.config import check, compose
from l2d.logs.decision import Decision, ReportedOutcome
from l2d.logs.operations import add_decisions, add_outcomes, add_run
from l2d.logs.outcome_log import OutcomeLog

N = 60


def write_log(file: Path, served: str, chosen: str) -> Path:
    """served, chosen: an expert for each row, repeated."""
    log, rng = OutcomeLog(file), np.random.default_rng(0)
    seen = {"experts": ["1", "2"], "shape": [2], "seen": {"features": ["x", "y"]}}
    log.do(add_run, "run", json.dumps({**seen, "encoder": None, "price_scale": 2.0}))
    for place in range(N):
        experts = served[place % len(served)], chosen[place % len(chosen)]
        features = rng.normal(size=2).astype("<f4").tobytes()
        log.do(add_decisions, [Decision(str(place), "run", *experts, "shadow", 1.0, 0.1, features=features)])
    log.do(add_outcomes, [ReportedOutcome(str(place), float(place % 3 == 0), None) for place in range(N)]).result()
    log.close()
    return file


@pytest.mark.parametrize("flags", [[], ["--all"]])
def test_what_the_router_chose_in_the_shadow(tmp_path: Path, flags: list[str]) -> None:
    log, out = write_log(tmp_path / "log.sqlite", "2", "112"), tmp_path / "log.csv"
    main(["export", str(log), "--out", str(out), *flags])
    with out.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert {row["expert"] for row in found} == {"2"}
    assert "".join(row["router_choice"] for row in found) == "112" * (N // 3)


def test_a_router_does_not_see_the_columns_about_the_server(tmp_path: Path) -> None:
    """dataset=table takes an export for a log with a row per answer. Names of experts may be numbers."""
    log, out = write_log(tmp_path / "log.sqlite", "12", "112"), tmp_path / "log.csv"
    main(["export", str(log), "--out", str(out)])
    assert {"router_choice", "price_scale"} <= {*out.read_text().splitlines()[0].replace('"', "").split(",")}
    arrays = make_dataset(check(compose(["dataset=table", f"dataset.path={out}"]))).load(tmp_path)
    assert arrays.seen.features == ("f_x", "f_y")
