"""The whole loop: a poor router serves with exploration, its log judges and trains the next one, and the server swaps to it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from tests.server.helpers import asking, make_service

from l2d.analysis.log_value import fresh_rows, log_value
from l2d.commands import evaluate
from l2d.config import check, compose
from l2d.core.results import Estimate
from l2d.logs.rows import explored_rows, read_rows
from l2d.router.router import Router
from l2d.runs.folder import RunFolder
from l2d.training.cross_validation import train_and_judge

MODELS = ("left", "right", "careful")
PRICES = (0.05, 0.05, 0.25)
NOISE = 8  # columns that say nothing
COLUMNS = ["side", *(f"noise{place}" for place in range(NOISE))]
AT_ONCE = 200
TOKEN = {"Authorization": "Bearer swap"}


class World:
    """Queries are rows of numbers. left is good at negative sides, right at positive ones, and careful everywhere, for a price."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def queries(self, n: int) -> np.ndarray:
        return self.rng.normal(size=(n, 1 + NOISE)).round(4)

    @staticmethod
    def chances(queries: np.ndarray) -> np.ndarray:
        """The chance that each model is right [n, 3]."""
        good = 0.1 + 0.85 / (1 + np.exp(3 * queries[:, 0]))
        return np.stack([good, 1.05 - good, np.full(len(queries), 0.85)], axis=1)

    def right(self, queries: np.ndarray) -> np.ndarray:
        return self.rng.random((len(queries), 3)) < self.chances(queries)


def true_loss(router: Router) -> float:
    """On fresh queries, with nothing drawn but these."""
    world = World(99)
    queries = world.queries(20_000)
    costs = 1 - world.chances(queries) + np.array(PRICES)
    order = [MODELS.index(name) for name in router.experts]
    return float(torch.from_numpy(costs[:, order]).gather(1, router.decide(queries)[:, None]).mean())


def write_table(file: Path, world: World, n: int) -> None:
    queries = world.queries(n)
    with file.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow([*COLUMNS, *(f"correct_{name}" for name in MODELS)])
        writer.writerows([*row, *right] for row, right in zip(queries, world.right(queries).astype(int), strict=True))


def trained(folder: Path, *overrides: str) -> Path:
    experiment = check(compose(["method=linear", f"runs_dir={folder / 'runs'}", *overrides]))
    train_and_judge(experiment)
    return RunFolder.of(experiment.plain).path


def send(client: TestClient, world: World, n: int) -> set[str]:
    """Ask, call the simulated model, report how it went. Which runs decided."""
    runs = set()
    for _ in range(n // AT_ONCE):
        queries = world.queries(AT_ONCE)
        right = world.right(queries)
        inputs = [{"features": dict(zip(COLUMNS, row, strict=True))} for row in queries.tolist()]
        decisions: list[Any] = client.post("/v1/route", json={"inputs": inputs}).json()["decisions"]
        outcomes = [
            {"decision_id": one["decision_id"], "correct": bool(row[MODELS.index(one["expert"])])}
            for one, row in zip(decisions, right, strict=True)
        ]
        assert client.post("/v1/outcomes", json={"outcomes": outcomes}).json()["recorded"] == AT_ONCE
        runs |= {one["run"] for one in decisions}
    return runs


def holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.standard_error is not None
    return abs(estimate.value - truth) <= 1.96 * estimate.standard_error


@pytest.mark.slow
def test_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world, log = World(4), tmp_path / "log.sqlite"
    write_table(tmp_path / "first.csv", world, 30)
    given = ["dataset=table", f"dataset.path={tmp_path / 'first.csv'}", "dataset.name=first", "cost=error_plus_cost"]
    first = trained(tmp_path, *given, f"cost.prices={list(PRICES)}")
    old = true_loss(Router.load(first))

    with asking(make_service(first, log, explore=0.3, admin_token="swap")) as client:
        assert send(client, world, 1000) == {str(first)}
        evaluate.main([str(first), "--log", str(log)])
        said = capsys.readouterr().out
        assert "verdict: per query, the router costs" in said
        before = log_value(Router.load(first), explored_rows(read_rows(log)))
        assert holds(before.router.doubly_robust, old)

        second = trained(tmp_path, "dataset=log", f"dataset.path={log}", "dataset.name=second")
        with pytest.raises(SystemExit, match="all its ids are those of rows that trained this router"):
            evaluate.main([str(second), "--log", str(log)])
        assert send(client, world, 1000) == {str(first)}
        rows, left_out = fresh_rows(read_rows(log), second)
        assert (len(rows), left_out) == (1000, 1000)
        router = Router.load(second)
        foretold = log_value(router, explored_rows(rows))

        answer = client.post("/admin/reload", json={"run": str(second)}, headers=TOKEN)
        assert (answer.status_code, answer.json()) == (200, {"run": str(second)})
        assert send(client, world, AT_ONCE) == {str(second)}

    new = true_loss(router)
    assert new < old - 0.1
    assert holds(foretold.router.doubly_robust, new)
    assert foretold.router.snips is not None
    assert holds(foretold.router.snips, new)
    gain: Any = foretold.ran.gain
    assert gain.standard_error is not None
    assert gain.value > 1.96 * gain.standard_error
    assert router.description.prices == pytest.approx(PRICES)  # carried over
    assert router.description.seen.features == tuple(COLUMNS)
