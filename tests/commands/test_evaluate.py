"""`l2d evaluate`: what it prints, and refusals of one line. The estimates are tested in tests/analysis/test_log_value.py."""

import contextlib
import csv
import json
import re
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands.refusals import refused
from tests.router.finished import CELLS, PRICED, Untrained, untrained
from tests.server.helpers import make_service

import l2d
from l2d.analysis import log_value
from l2d.commands.evaluate import compared, main, price_notes
from l2d.commands.log import main as log_main
from l2d.core.prices import ERRORS, Prices
from l2d.core.results import Estimate
from l2d.logs.decision import Decision, ReportedOutcome
from l2d.logs.operations import add_decisions, add_outcomes
from l2d.logs.outcome_log import OutcomeLog
from l2d.logs.rows import read_rows
from l2d.router.router import Router
from l2d.runs.artifact.exported import HELD_OUT

N = 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    """A method that takes other prices, with validation rows on which it knows the errors."""
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1) * 99
    kept = {"errors": errors, "expected": errors, "mean_errors": errors.mean(dim=0)}
    given = ("dataset.features=[x,y]", *PRICED, "method=cost_regression")
    tensors = {f"{HELD_OUT}.{name}": value for name, value in kept.items()}
    return untrained(tmp_path_factory.mktemp("run"), *given, kept=tensors)


def write_log(run: Path, file: Path, chance: float = 1 / 3, **other: Any) -> Path:
    """Experts drawn; a is always right, the others never."""
    make_service(run, file).log.close()  # which writes what the run sees
    log, rng = OutcomeLog(file), np.random.default_rng(0)
    drawn = rng.integers(0, 3, N)
    features = rng.normal(size=(N, 2)).astype("<f4")
    for place, k in enumerate(drawn):
        own = {"expert": "abc"[k], "price": (0.5, 0.1, 0.3)[k], "features": features[place].tobytes(), **other}
        chosen = {"run": str(run), "router_choice": "a", "decided_by": "explore", "propensity": chance, **own}
        log.do(add_decisions, [Decision(str(place), **chosen)])
    log.do(add_outcomes, [ReportedOutcome(str(place), float(k == 0), None) for place, k in enumerate(drawn)]).result()
    log.close()
    return file


def change(log: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(log)) as database, database:
        database.execute(statement)


def decided_by_two(log: Path, *abouts: dict[str, object]) -> None:
    """The first rows are of a run called old, the others of a run called new. abouts: what the log says of their prices."""
    with contextlib.closing(sqlite3.connect(log)) as database, database:
        [[about]] = database.execute("SELECT about FROM runs")
        for name, own in zip(("old", "new"), abouts, strict=True):
            database.execute("INSERT INTO runs VALUES (?, ?)", (name, json.dumps({**json.loads(about), **own})))
    change(log, f"UPDATE decisions SET run = iif(number <= {N // 2}, 'old', 'new')")


def test_what_it_prints(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """a costs 0.5 on every row, b 1.1, c 1.3: doubly robust and SNIPS agree, and nothing is uncertain but who was asked."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log)])
    said = capsys.readouterr()
    lines = said.out.splitlines()
    names = [line[:20].strip() for line in lines[2:7]]
    assert names == ["router", "the policy that ran", "always a", "always b", "always c"]
    assert [line.split()[2] for line in lines[4:7]] == ["0.5000", "1.1000", "1.3000"]
    assert left_out(said.err) == [N]
    choices = {choice.expert for choice in Router.load(run.path).route(np.random.default_rng(0).normal(size=(N, 2)))}
    [chosen] = choices  # an untrained router at these prices
    loss = {"a": 0.5, "b": 1.1, "c": 1.3}[chosen]
    assert lines[2].split()[1] == f"{loss:.4f}"
    assert f"costs {loss - 0.5:.4f} more than always a" in lines[-1]
    main([str(run.path), "--log", str(log), "--prices", "1,0,0"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[4:7]] == ["1.0000", "1.0000", "1.0000"]


def test_limits_of_experts_are_told(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has a chance while the limit is reached, and propensities do not say when."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log)])
    assert "--capacity" not in capsys.readouterr().out
    other = shutil.copyfile(log, tmp_path / "other.sqlite")
    change(log, "INSERT INTO asks VALUES ('a', 1, 0.0)")
    change(other, "UPDATE decisions SET decided_by = 'capacity' WHERE id = (SELECT min(id) FROM decisions)")
    for one, number in ((log, 0), (other, 1)):
        main([str(run.path), "--log", str(one)])
        assert re.findall(r"(\d+) of (\d+) rows.*--capacity", capsys.readouterr().out) == [(str(number), str(N))]
    change(other, "UPDATE decisions SET propensity = NULL WHERE decided_by = 'capacity'")
    main([str(run.path), "--log", str(other)])
    assert "--capacity" not in capsys.readouterr().out  # no row that counts


@pytest.mark.slow
def test_a_budget_is_told(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log), "--budget", "0.4"])
    said = capsys.readouterr()
    assert str(Router.load(run.path).at(budget=0.4).operating_point) in said.err
    # a alone is best, but costs 0.5; b costs 0.1, and with its errors 1.1
    assert "always b" in said.out.splitlines()[-1]
    Router.load(run.path).at(budget=0.4).save(tmp_path / "saved")
    main([str(tmp_path / "saved"), "--log", str(log)])
    assert capsys.readouterr().out == said.out
    assert "within the budget of 0.4" in said.out
    assert refused(main, run.path, "--log", log, "--budget", "0.4", "--raw").startswith("error: --budget=0.4: ")


@pytest.mark.slow
def test_a_saved_router_at_other_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its budget is kept at them, so they count, as with --prices. The prices of its run differed between queries."""
    router = l2d.fit(
        np.random.default_rng(0).normal(size=(N, 2)),
        errors=np.tile(np.eye(3), (N // 3, 1)),
        prices=np.random.default_rng(1).uniform(0.1, 0.2, (N, 3)),
        experts=["a", "b", "c"],
        method="linear",
        options={"progress": False},
    )
    router.save(tmp_path / "run")
    log = write_log(tmp_path / "run", tmp_path / "log.sqlite")
    router.at([5.0, 1.0, 3.0]).within(4.0).save(tmp_path / "saved")
    main([str(tmp_path / "run"), "--log", str(log), "--prices", "5,1,3", "--budget", "4"])
    expected = capsys.readouterr().out
    assert "within the budget of 4" in expected
    main([str(tmp_path / "saved"), "--log", str(log)])
    assert capsys.readouterr().out == expected
    main([str(tmp_path / "run"), "--log", str(log)])
    assert "the policy that ran 0." in capsys.readouterr().out  # by the log's


def test_a_budget_that_allows_no_expert_alone(
    run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of all is compared then, with a remark."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    monkeypatch.setattr(log_value, "allowed_experts", lambda _: ())
    main([str(run.path), "--log", str(log)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert ("always a" in last, "does not allow" in last) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "dearer", "within"), [(0.5, 1, "within"), (0.1, 1, "within"), (0.1, 3, "above")])
def test_the_spend_within_a_budget(
    run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: float, dearer: int, within: str
) -> None:
    """Each expert has one price in the log, so the mean price follows from the choices. If experts cost more than the router
    expects, a budget that it keeps by its own prices is exceeded."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    change(log, f"UPDATE decisions SET price = {dearer} * price")
    main([str(run.path), "--log", str(log), "--budget", str(budget)])
    lines = capsys.readouterr().out.splitlines()
    rows = read_rows(log)
    assert rows.features is not None
    chosen = Router.load(run.path).at(budget=budget).decide(rows.features).tolist()
    spend = dearer * np.array([0.5, 0.1, 0.3])[chosen].mean()
    [told] = [line for line in lines if line.startswith("mean price")]
    assert f"router {spend:.4g} (" in told
    assert told.endswith(f" {rows.prices.mean():.4g}")
    assert any(f"{within} the budget of {budget:g}" in line for line in lines)


def test_a_budget_in_words() -> None:
    """By the interval of 1.96 standard errors; in dollars, if the run knows what an error costs."""
    ran = SimpleNamespace(name="the policy that ran")
    value: Any = SimpleNamespace(price=Estimate(0.02, 0.001), paid=Estimate(0.03, 0.002), ran=ran)
    [said] = price_notes(value, ERRORS, None)
    assert re.findall(r"0\.\d+", said) == ["0.02", "0.01804", "0.02196", "0.03"]
    for budget, within, sure in (
        *((0.0221, True, True), (0.0219, True, False)),
        *((0.0181, False, False), (0.018, False, True)),
    ):
        told = price_notes(value, ERRORS, budget)[1]
        assert ("within" in told, "not significantly" not in told, f"{budget:g}" in told) == (within, sure, True)
    assert "$0.01804 to $0.02196" in price_notes(value, Prices(error_price=0.5), 0.03)[0]
    assert "latency" in price_notes(value, Prices(error_price=0.5, latency_price=0.1), None)[0]
    assert "$0.03" in price_notes(value, Prices(error_price=0.5), 0.03)[1]
    exact: Any = SimpleNamespace(price=Estimate(0.02 * (1 + 1e-8), 0.0), paid=Estimate(0.03, 0.002), ran=ran)
    assert "within" in price_notes(exact, ERRORS, 0.02)[1]
    free: Any = SimpleNamespace(price=None, paid=None)
    assert price_notes(free, ERRORS, None) == []


@pytest.mark.slow
def test_rows_without_a_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose prices differ between rows has no other price to take: these rows are left out, of the log and of its export."""
    cells = {**CELLS, **{f"price_{name}": [1.0] * len(CELLS["x"]) for name in "abc"}}
    own = untrained(tmp_path, "dataset.features=[x,y]", "cost=columns", "method=cost_regression", cells=cells).path
    log, out = write_log(own, tmp_path / "log.sqlite"), tmp_path / "log.csv"
    change(log, "UPDATE decisions SET price = NULL WHERE number <= 30")
    log_main(["export", str(log), "--out", str(out)])
    rows, printed = read_rows(log), []
    for file in (log, out):
        capsys.readouterr()
        main([str(own), "--log", str(file)])
        said = capsys.readouterr()
        assert left_out(said.err) == [N - 30, "30 rows without a price"]
        printed.append(said.out)
    assert printed[0] == printed[1]
    [ran] = [line for line in printed[0].splitlines() if line.startswith("the policy that ran")]
    assert f"{(rows.errors + rows.prices)[30:].mean():.4f}" in ran
    change(log, "UPDATE decisions SET price = NULL")
    log_main(["export", str(log), "--out", str(out)])
    for file in (log, out):
        assert refused(main, own, "--log", file).endswith("outcome")


def test_a_shadow_explores_nothing(run: Untrained, tmp_path: Path) -> None:
    shadow = {"expert": "c", "decided_by": "shadow"}
    log, out = write_log(run.path, tmp_path / "log.sqlite", chance=1.0, **shadow), tmp_path / "log.csv"
    log_main(["export", str(log), "--out", str(out)])
    for file in (log, out):
        assert "--explore" in refused(main, run.path, "--log", file)


def left_out(printed: str) -> list[Any]:
    """The number of decisions, and the rows that were left out with the reason."""
    [(number, reasons)] = re.findall(r"(\d+) decisions with an outcome(?:; left out: (.*))?$", printed, re.MULTILINE)
    return [int(number), *filter(None, [reasons])]


def exported(run: Path, folder: Path) -> list[dict[str, str]]:
    """The rows of an export."""
    log, out = write_log(run, folder / "log.sqlite"), folder / "log.csv"
    log_main(["export", str(log), "--out", str(out)])
    with out.open(newline="") as file:
        return [*csv.DictReader(file)]


def written(rows: list[dict[str, str]], folder: Path) -> Path:
    with (folder / "changed.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "changed.csv"


def test_an_id_that_is_given_twice(run: Untrained, tmp_path: Path) -> None:
    """The row is that of the file."""
    rows = exported(run.path, tmp_path)
    said = refused(main, run.path, "--log", written([*rows, rows[2]], tmp_path))
    assert re.search(rf"id\b.*\b{N + 1}\b", said)


def test_rows_that_are_left_out_are_counted(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(run.path, tmp_path / "log.sqlite")
    file = run.path / "test.npz"
    np.savez(file, train_ids=np.arange(20))
    try:
        main([str(run.path), "--log", str(log)])
        number, why = left_out(capsys.readouterr().err)
        assert (number, why.split()[0], "trained" in why) == (100, "20", True)
        np.savez(file, train_ids=np.arange(N))
        assert "trained" in refused(main, run.path, "--log", log)
    finally:
        file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("scales", [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)])
def test_an_export(
    run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str], scales: tuple[float, float]
) -> None:
    """Also of two runs with their own price of an error."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    decided_by_two(log, *({"currency": "$", "price_scale": scale} for scale in scales))
    main([str(run.path), "--log", str(log)])
    expected = capsys.readouterr().out
    for name in ("log.csv", "log.parquet"):
        log_main(["export", str(log), "--out", str(tmp_path / name)])
        capsys.readouterr()
        main([str(run.path), "--log", str(tmp_path / name)])
        assert capsys.readouterr().out == expected


@pytest.mark.slow
def test_mistakes_are_one_line(run: Untrained, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    make_service(run.path, empty).log.close()
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 9)
    (tmp_path / "table.csv").write_text("id,expert\n1,a\n")
    (tmp_path / "query.csv").write_text("id,query,expert,correct,propensity\n1,how many,a,1,0.5\n")
    logs = {
        "certain": write_log(run.path, tmp_path / "certain.sqlite", chance=1.0),
        "none": write_log(run.path, tmp_path / "none.sqlite", features=None),
        "others": write_log(run.path, tmp_path / "others.sqlite", expert="z"),
        "good": write_log(run.path, tmp_path / "good.sqlite"),
        "wide": write_log(run.path, tmp_path / "wide.sqlite", features=np.zeros(3, "<f4").tobytes()),
    }
    for arguments, said in (
        ([run.path], "--log"),
        (["--log", empty], "RUN"),
        ([run.path, "--log", tmp_path / "nowhere.sqlite"], "nowhere.sqlite: no such file"),
        ([run.path, "--log", tmp_path / "nowhere.csv"], "nowhere.csv"),
        ([run.path, "--log", tmp_path / "text.sqlite"], "not a log"),
        ([run.path, "--log", tmp_path / "table.csv"], "propensity, correct"),
        ([run.path, "--log", tmp_path / "query.csv"], "query.csv: no column prompt"),
        ([run.path, "--log", empty], "outcome"),
        ([run.path, "--log", logs["certain"]], "--explore"),
        ([run.path, "--log", logs["none"]], "--keep none"),
        ([run.path, "--log", logs["others"]], " z "),
        ([run.path, "--log", logs["wide"]], "another router"),
        ([run.path, "--log", logs["good"], "--run", "another"], "run another"),
        ([run.path, "--log", logs["good"], "--prices", "1"], "--prices"),
        ([tmp_path, "--log", logs["good"]], "not a run's folder"),
    ):
        assert said in refused(main, *arguments), said


def test_a_comparison_in_words() -> None:
    """By the sign of the gain, and whether its interval of 1.96 standard errors excludes 0."""
    for gain, word in ((0.2, "less"), (-0.2, "more")):
        said = compared(Estimate(gain, 0.05), "x", ERRORS)
        assert (word in said, re.findall(r"0\.\d+", said)) == (True, ["0.2000", "0.1020", "0.2980"])
    for estimate in (Estimate(0.2, 0.11), Estimate(-0.2, 0.11), Estimate(0.0, 0.0), Estimate(0.5, None)):
        assert "not significantly" in compared(estimate, "x", ERRORS)
    dollars = compared(Estimate(0.2, 0.05), "x", Prices(error_price=0.1))
    assert re.findall(r"\$0\.\d+", dollars) == ["$0.02000", "$0.01020", "$0.02980"]
