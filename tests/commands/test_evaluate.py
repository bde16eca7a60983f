"""`l2d evaluate`: what it prints, and refusals of one line. The estimates are tested in tests/serving/server/test_log_value.py."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands.refusals import refused
from tests.serving.finished import PRICED, Untrained, untrained
from tests.serving.server.helpers import make_service

from l2d.commands.evaluate import compared, main
from l2d.core.results import Estimate
from l2d.serving.exported import HELD_OUT
from l2d.serving.router import Router
from l2d.serving.server.outcome_log import LoggedDecision, OutcomeLog, ReportedOutcome
from l2d.utils.text import Unit

N = 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    """Of a method that takes other prices, with validation rows on which it knows the errors."""
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1) * 99
    kept = {"errors": errors, "expected": errors, "mean_errors": errors.mean(dim=0)}
    given = ("dataset.features=[x,y]", *PRICED, "method=cost_regression")
    tensors = {f"{HELD_OUT}.{name}": value for name, value in kept.items()}
    return untrained(tmp_path_factory.mktemp("run"), *given, kept=tensors)


def write_log(run: Path, file: Path, chance: float = 1 / 3, **other: object) -> Path:
    """Experts drawn; a is always right, the others never."""
    make_service(run, file).log.close()  # which writes what the run sees
    log, rng = OutcomeLog(file), np.random.default_rng(0)
    drawn = rng.integers(0, 3, N)
    features = rng.normal(size=(N, 2)).astype("<f4")
    log.add_decisions(
        [
            LoggedDecision(
                str(place),
                **{
                    "run": str(run),
                    "expert": "abc"[k],
                    "router_choice": "a",
                    "decided_by": "explore",
                    "propensity": chance,
                    "price": (0.5, 0.1, 0.3)[k],
                    "features": features[place].tobytes(),
                    **other,
                },
            )
            for place, k in enumerate(drawn)
        ]
    )
    log.add_outcomes([ReportedOutcome(str(place), float(k == 0), None) for place, k in enumerate(drawn)]).result()
    log.close()
    return file


def test_what_it_prints(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """a costs 0.5 on every row, b 1.1, c 1.3: doubly robust and SNIPS agree, and nothing is uncertain but who was asked."""
    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log)])
    said = capsys.readouterr()
    lines = said.out.splitlines()
    names = [line[:20].strip() for line in lines[2:7]]
    assert names == ["router", "the policy that ran", "always a", "always b", "always c"]
    assert [line.split()[2] for line in lines[4:7]] == ["0.5000", "1.1000", "1.3000"]
    assert f"{N} decisions with an outcome" in said.err
    choices = {choice.expert for choice in Router.load(run.path).route(np.random.default_rng(0).normal(size=(N, 2)))}
    [chosen] = choices  # an untrained router at these prices
    loss = {"a": 0.5, "b": 1.1, "c": 1.3}[chosen]
    assert lines[2].split()[1] == f"{loss:.4f}"
    assert lines[-1].startswith("verdict: per query, the router ")
    assert f"costs {loss - 0.5:.4f} more than always a, the best expert alone" in lines[-1]
    main([str(run.path), "--log", str(log), "--prices", "1,0,0"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[4:7]] == ["1.0000", "1.0000", "1.0000"]


def test_a_budget_is_told(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log), "--budget", "0.4"])
    said = capsys.readouterr().err
    assert str(Router.load(run.path).at(budget=0.4).operating_point) in said


def test_rows_that_are_left_out_are_counted(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(run.path, tmp_path / "log.sqlite")
    file = run.path / "test.npz"
    np.savez(file, train_ids=np.arange(20))
    try:
        main([str(run.path), "--log", str(log)])
        assert "100 decisions with an outcome; left out: 20 rows that trained this router" in capsys.readouterr().err
        np.savez(file, train_ids=np.arange(N))
        assert "all its rows trained this router" in refused(main, run.path, "--log", log)
    finally:
        file.unlink()


def test_an_export(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from l2d.commands.log import main as log_main

    log = write_log(run.path, tmp_path / "log.sqlite")
    main([str(run.path), "--log", str(log)])
    expected = capsys.readouterr().out
    for name in ("log.csv", "log.parquet"):
        log_main(["export", str(log), "--out", str(tmp_path / name)])
        capsys.readouterr()
        main([str(run.path), "--log", str(tmp_path / name)])
        assert capsys.readouterr().out == expected


def test_mistakes_are_one_line(run: Untrained, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    make_service(run.path, empty).log.close()
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 9)
    (tmp_path / "table.csv").write_text("id,expert\n1,a\n")
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
        ([run.path, "--log", tmp_path / "text.sqlite"], "not a log of l2d serve"),
        ([run.path, "--log", tmp_path / "table.csv"], "no column propensity, loss"),
        ([run.path, "--log", empty], "no decision with an outcome"),
        ([run.path, "--log", logs["certain"]], "no row was explored (l2d serve --explore)"),
        ([run.path, "--log", logs["none"]], "the log kept no inputs (--keep none)"),
        ([run.path, "--log", logs["others"]], "its experts z are not the router's (a, b, c)"),
        ([run.path, "--log", logs["wide"]], "the log has numbers that another router saw"),
        ([run.path, "--log", logs["good"], "--run", "another"], "no decision of run another with an outcome"),
        ([run.path, "--log", logs["good"], "--prices", "1"], "--prices"),
        ([tmp_path, "--log", logs["good"]], "not a run's folder"),
    ):
        assert said in refused(main, *arguments), said


def test_a_comparison_in_words() -> None:
    """By the sign of the gain, and whether its interval of 1.96 standard errors excludes 0."""
    assert compared(Estimate(0.2, 0.05), "x", Unit()) == "costs 0.2000 less than x (95 % interval 0.1020 to 0.2980)"
    assert compared(Estimate(-0.2, 0.05), "x", Unit()) == "costs 0.2000 more than x (95 % interval 0.1020 to 0.2980)"
    for gain in (Estimate(0.2, 0.11), Estimate(-0.2, 0.11), Estimate(0.0, 0.0)):
        assert compared(gain, "x", Unit()).startswith("is not significantly cheaper or dearer than x (")
    dollars = "costs $0.02000 less than x (95 % interval $0.01020 to $0.02980)"
    assert compared(Estimate(0.2, 0.05), "x", Unit(0.1)) == dollars
    assert "not significantly" in compared(Estimate(0.5, None), "x", Unit())
