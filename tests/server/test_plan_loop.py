"""A plan that starts as one choice: second asks teach it, and its log says what it is worth."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.router.test_plans import NAMES, PRICES, QUICK, world
from tests.server.helpers import asking, make_service

import l2d
from l2d.config import check, compose
from l2d.networks.estimators.planner import planner_of, unplanned
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.training.cross_validation import train_and_judge

COLUMNS = ("f1", "f2")


def one_each(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[list[str]]]:
    X, errors, answers = world(n, seed)
    asked = np.random.default_rng(seed).integers(0, 3, n)[:, None] == np.arange(3)
    return X, np.where(asked, errors, np.nan), answers


@pytest.fixture(scope="module")
def start() -> Router:
    X, errors, answers = one_each(300, 0)
    return l2d.fit(X, errors=errors, prices=PRICES, experts=NAMES, answers=answers, method="plan", options=QUICK)


def test_a_plan_of_rows_with_one_answer_makes_one_choice(start: Router) -> None:
    assert unplanned(start.network) is not None
    assert planner_of(start.network) is None
    step = start.begin([0.0, 0.0])
    assert step.answered("yes").accept == step.ask
    assert start.description.plan is None


def serve(router: Router, log: Path, n: int, seed: int, **settings: Any) -> None:
    """Every answer gets its outcome."""
    X, errors, answers = world(n, seed)
    with asking(make_service(router, log, **settings)) as client:
        for query, wrong, said in zip(X.tolist(), errors, answers, strict=True):
            found = client.post("/v1/route", json={"features": query}).json()
            id, asked = found["decision_id"], list[str]()
            while (name := found.get("ask")) is not None:
                asked.append(name)
                body = {"expert": name, "answer": said[NAMES.index(name)]}
                found = client.post(f"/v1/decisions/{id}/answers", json=body).json()
            grades = [{"decision_id": id, "expert": name, "correct": not wrong[NAMES.index(name)]} for name in asked]
            assert client.post("/v1/outcomes", json={"outcomes": grades}).json()["recorded"] == len(asked)
            again = client.post("/v1/outcomes", json={"outcomes": grades}).json()
            assert again == {"recorded": 0, "known": len(asked)}


@pytest.mark.full
def test_second_asks_teach_a_plan(start: Router, tmp_path: Path) -> None:
    log = tmp_path / "log.sqlite"
    serve(start, log, 500, 1, explore=0.6, explore_second=0.7)
    with closing(sqlite3.connect(log)) as database:
        counts = dict(database.execute("SELECT place, count(*) FROM calls GROUP BY place"))
        seconds = {round(one, 9) for (one,) in database.execute("SELECT propensity FROM calls WHERE place = 2")}
        given = database.execute("SELECT count(*) FROM decisions WHERE served IS NULL OR served = expert").fetchone()
    assert counts[1] == 500
    assert counts[2] == pytest.approx(350, abs=40)
    assert seconds == {0.35}
    assert given[0] > 350  # one choice: a second answer is asked for the log alone
    settings = ["method=plan", "method.seconds=0.1", f"runs_dir={tmp_path / 'runs'}", "progress=false"]
    experiment = check(compose(["dataset=log", f"dataset.path={log}", *settings]))
    metrics = train_and_judge(experiment)
    assert metrics is not None
    assert metrics.plans is not None
    assert metrics.log is not None
    router = Router.load(RunFolder.of(experiment.plain).path)
    planner = planner_of(router.network)
    assert planner is not None
    by_name = {one.name: one for one in metrics.experts}
    X, errors, answers = world(3000, 2)
    outcomes = torch.from_numpy(errors), torch.tensor(PRICES)
    for name in ("one choice", "cascade", "plan"):  # what the log says is true
        truth, found = planner.followed(name, *seen_by(router, X, answers)).costs(*outcomes)[0], by_name[name]
        assert found.standard_error is not None
        assert found.error_rate + found.price == pytest.approx(float(truth.mean()), abs=4 * found.standard_error)
    assert metrics.guarded.deferral_loss < 0.4
    router.score(X, errors=errors, answers=answers)


def seen_by(router: Router, X: np.ndarray, answers: Any) -> tuple[Any, Any]:
    from l2d.router.plans import given_replies
    from l2d.router.trained import inputs_of, outputs_of

    outputs = outputs_of(router, inputs_of(router, X))[:, :3]
    return outputs, given_replies(router, answers, len(X))
