"""`l2d route`: what it prints and writes, and how it refuses. What it decides is tested in tests/router."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.commands.refusals import refused
from tests.data.sets.test_table import write
from tests.router.finished import PRICED, TEST, Untrained, query_rows, untrained, write_queries

from l2d.commands import route
from l2d.commands.route import choices_csv, choices_summary, load_router, main, make_route_parser
from l2d.core.guard import Guard
from l2d.core.prices import Prices
from l2d.data.text.encoders import Encoder
from l2d.router.choices import UNREAD, Choice
from l2d.router.router import Router
from l2d.runs.artifact.exported import FILE, HELD_OUT, read_weights, write_weights

PROMPTS = [row["prompt"] for row in query_rows("prompt")]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return untrained(tmp_path_factory.mktemp("texts"), "dataset.text=prompt", "dataset.features=[]", "method=mild")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    """A router of a method that takes other prices, with validation rows on which it knows the errors."""
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1) * 99
    held_out = {"errors": errors, "expected": errors, "mean_errors": errors.mean(dim=0)}
    kept = {f"{HELD_OUT}.{name}": value for name, value in held_out.items()}
    return untrained(tmp_path_factory.mktemp("features"), *PRICED, "method=cost_regression", kept=kept)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_texts(texts: Untrained, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(texts.path), "--text", PROMPTS[0], "--text", PROMPTS[1]])
    found = read(capsys.readouterr().out)
    assert list(found[0]) == ["row", "expert", *(f"posterior_{expert}" for expert in "abc")]
    assert [row["row"] for row in found] == ["1", "2"]
    for row, choice in zip(found, Router.load(texts.path).route(PROMPTS[:2]), strict=True):
        assert row["expert"] == choice.expert
        assert {name: float(row[f"posterior_{name}"]) for name in "abc"} == pytest.approx(choice.posterior, rel=1e-4)


def test_a_file_to_a_file(texts: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The choices go to the file, and how many went to each expert to stderr."""
    out = tmp_path / "choices.csv"
    main([str(texts.path), "--file", str(write(tmp_path, {"prompt": PROMPTS})), "--out", str(out)])
    told = capsys.readouterr()
    experts = [choice.expert for choice in Router.load(texts.path).route(PROMPTS)]
    assert told.out == ""
    assert [row["expert"] for row in read(out.read_text())] == experts
    assert len(told.err.splitlines()) == 1
    for name in "abc":
        assert f"{experts.count(name)} to {name}" in told.err
    assert {entry.name for entry in tmp_path.iterdir()} == {"choices.csv", "table.csv"}


def test_queries_without_a_text_are_counted(
    texts: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, {"prompt": [PROMPTS[0], "", " ", PROMPTS[1]]})
    main([str(texts.path), "--file", str(file)])
    told, best = capsys.readouterr(), Router.load(texts.path).description.guard.best
    rows = read(told.out)
    assert [row["decided_by"] for row in rows] == ["router", "unreadable", "unreadable", "router"]
    assert {row["expert"] for row in rows[1:3]} == {"abc"[best]}
    assert [row["posterior_a"] != "" for row in rows] == [True, False, False, True]
    assert "2 of 4" in told.err
    main([str(texts.path), "--text", ""])
    assert read(capsys.readouterr().out)[0]["decided_by"] == "unreadable"


def test_means_are_of_the_queries_that_were_read() -> None:
    """Prices .1 and .3 of two, nothing of the third."""
    chosen = [Choice(name, None, None, expected_prices={"a": 0.1, "b": 0.3}) for name in "ab"]
    assert summary([*chosen, Choice("a", None, None, guard=UNREAD)], "ab") == ["3", "2", "1", "0.2"]
    assert summary(chosen, "ab", error_price=5.0) == ["2", "1", "1", "$0.2"]


def summary(choices: list[Choice], experts: str, **prices: Any) -> list[str]:
    """Its numbers."""
    router: Any = SimpleNamespace(experts=tuple(experts), prices=Prices(**prices))
    return re.findall(r"\$?\d[\d.,]*\d|\d", choices_summary(choices, router))


def test_summary_counts_each_expert() -> None:
    choices = [Choice("b", None, None)] * 3 + [Choice("c", None, None)]
    assert summary(choices, "abc") == ["4", "0", "3", "1"]
    free = [replace(choice, expected_prices={"b": 0.0, "c": 0.0}) for choice in choices]
    assert summary(free * 1000, "bc") == ["4,000", "3,000", "1,000"]


def test_the_run_may_be_in_the_home_folder(
    texts: Untrained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in RUN=~/run, which no shell expands."""
    monkeypatch.setenv("HOME", str(texts.path.parent))
    main([f"~/{texts.path.name}", "--text", PROMPTS[0]])
    assert len(read(capsys.readouterr().out)) == 1


def test_modules_that_are_trusted_are_looked_for_here(
    texts: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("l2d.commands.route.look_in", seen.append)
    monkeypatch.setattr(Router, "load", lambda *given, **named: seen.append((*given, named)))
    given = [str(texts.path), "--text", "x"]
    load_router(make_route_parser().parse_args(given))
    load_router(make_route_parser().parse_args([*given, "--raw", "--trust", "m", "--trust", "n"]))
    plain, trusting = {"raw": False, "trust": []}, {"raw": True, "trust": ["m", "n"]}
    assert seen == [(texts.path, plain), str(tmp_path), (texts.path, trusting)]


@pytest.mark.parametrize("name", ["queries.csv", "queries.parquet"])
def test_the_columns_of_the_file_come_first(
    name: str, texts: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are written there, whether the router sees them or not. None is lost that has the name of an answer's column."""
    other = {"score": ["0.50", ""], "row": [9, 8], "expert": ["x", "y"], "given_expert": ["u", "v"]}
    cells: Any = {"user": ["007", "b,c"], "prompt": PROMPTS[:2], **other}
    main([str(texts.path), "--file", str(write(tmp_path, cells, name))])
    found = read(capsys.readouterr().out)
    twice = ["given_given_row", "given_given_expert", "given_expert"]
    assert list(found[0])[:9] == ["user", "prompt", "score", *twice, "row", "expert", "posterior_a"]
    assert [[row[name] for name in twice] for row in found] == [["9", "x", "u"], ["8", "y", "v"]]
    assert [(row["user"], row["score"], row["row"]) for row in found] == [("007", "0.50", "1"), ("b,c", "", "2")]
    experts = [choice.expert for choice in Router.load(texts.path).route(PROMPTS[:2])]
    assert [(row["prompt"], row["expert"]) for row in found] == [*zip(PROMPTS[:2], experts, strict=True)]


def test_a_text_that_is_cut_is_said(
    texts: Untrained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Encoder, "note", "1 of 2 texts are longer")
    main([str(texts.path), "--text", PROMPTS[0]])
    assert capsys.readouterr().err == "1 of 2 texts are longer\n"


def test_the_guard_is_said_unless_raw(features: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = write_queries(tmp_path)
    weights, description = read_weights(features.path / FILE)
    write_weights(features.path / FILE, weights, replace(description, guard=Guard(None, 2, 2, 0.0, None)))
    try:
        main([str(features.path), "--file", str(queries)])
        told = capsys.readouterr()
        assert {row["expert"] for row in read(told.out)} == {"c"}
        assert ("goes to c" in told.err, "--raw" in told.err) == (True, True)
        main([str(features.path), "--file", str(queries), "--raw"])
        told = capsys.readouterr()
        assert {row["expert"] for row in read(told.out)} != {"c"}
        assert told.err == ""
    finally:
        write_weights(features.path / FILE, weights, description)


def test_other_prices(features: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(features.path), "--file", str(write_queries(tmp_path)), "--prices", "{c: 9, b: 0, a: 9}"])
    found = read(capsys.readouterr().out)
    assert len(found) == TEST
    assert {row["expert"] for row in found} == {"b"}
    assert all(float(row["expected_cost_a"]) > 9 > 1 > float(row["expected_cost_b"]) for row in found)


def test_prices_may_be_written_in_several_ways() -> None:
    """Names of models may have colons."""
    for text in ("a=9,b=0", "{b: 0, a: 9}", "'a':9,'b':0"):
        assert route.read_prices(text) == {"a": 9, "b": 0}
    assert route.read_prices("9,0") == route.read_prices("[9,0]") == [9, 0]
    assert route.read_prices("qwen:7b=0.3,llama:70b=1") == {"qwen:7b": 0.3, "llama:70b": 1.0}
    assert route.read_prices("qwen:7b:0.3") == {"qwen:7b": 0.3}


BAD_PRICES = {
    "0.1,0.2": "--prices=[0.1, 0.2]: expected 3",
    "0,0,dear": "--prices=0,0,dear: ",
    "a=1,b=2,c=3,a=0": "--prices=a=1,b=2,c=3,a=0: ",
    "a=1,2,3": "--prices=a=1,2,3: ",
    "": "--prices=: ",
}


@pytest.mark.parametrize("prices", BAD_PRICES)
def test_bad_prices(prices: str, features: Untrained) -> None:
    assert BAD_PRICES[prices] in refused(main, features.path, "--file", "none.csv", "--prices", prices)


BAD_COMMANDS: dict[str, tuple[str, ...]] = {
    "nothing asked": ("--text --file --image",),
    "two kinds": ("--image", "--text", "why", "--image", "a.png"),
    "shortened flag": ("--trus=os", "--text", "why", "--trus=os"),
    "text for rows": ("--text: ", "--text", "why"),
    "image for rows": ("--image: ", "--image", "a.png"),
    "no such file": ("none.csv: no such file", "--file", "none.csv"),
    "a name that begins with a tilde, but no user's folder": ("~$queries.csv", "--file", "~$queries.csv"),
    "budget below every price": ("--budget=0.05: ", "--file", "none.csv", "--budget", "0.05"),
    "no folder to write to": ("--out=nowhere/a.csv: ", "--text", "why", "--out", "nowhere/a.csv"),
    "a folder to write to": ("--out=.: is a folder", "--text", "why", "--out", "."),
}


@pytest.mark.parametrize("what", BAD_COMMANDS)
def test_bad_commands_are_one_line(what: str, features: Untrained) -> None:
    said, *given = BAD_COMMANDS[what]
    assert said in refused(main, features.path, *given)


def test_nothing_is_promised_that_is_refused(
    features: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--file", write_queries(tmp_path), "--budget", "5", "--capacity", "{a: 90%}"]
    assert "--capacity" in refused(main, features.path, *words)
    assert capsys.readouterr().err == ""


def test_the_queries_are_not_overwritten(features: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queries.csv"
    file.write_text("x\n1\n")
    said = refused(main, features.path, "--file", str(file), "--out", f"{tmp_path}/./queries.csv")
    assert "queries.csv: " in said
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, out in (("~/queries.csv", file), (file, "~/queries.csv")):
        assert "would be lost" in refused(main, features.path, f"--file={given}", f"--out={out}")
    assert file.read_text() == "x\n1\n"


def test_every_image_is_asked_about() -> None:
    options = make_route_parser().parse_args(["run", "--image", "a.png", "b.png", "--image", "c.png"])
    router: Any = SimpleNamespace(description=SimpleNamespace(kind="image"), route=list)
    found: list[Any] = route.ask_router(router, options)
    assert found == ["a.png", "b.png", "c.png"]


def test_csv_quotes_names_and_leaves_blanks() -> None:
    choice = Choice("b, the best", None, {"a": 0.25, "b, the best": 1 / 3})
    sure = Choice("a", {"a": 1.0, "b, the best": 0.0}, None)
    assert choices_csv([choice, sure], ["a", "b, the best"], {}) == (
        'row,expert,posterior_a,"posterior_b, the best",expected_cost_a,"expected_cost_b, the best"\n'
        '1,"b, the best",,,0.25,0.333333\n'
        "2,a,1,0,,\n"
    )
    known = Choice("a", None, None, expected_prices={"a": 0.002, "b": 0.1}, expected_errors={"a": 0.25, "b": 0.5})
    assert choices_csv([known, replace(known, expert="b")], ["a", "b"], {}) == (
        "row,expert,expected_price,expected_error\n1,a,0.002,0.25\n2,b,0.1,0.5\n"
    )
    free = replace(known, expected_prices={"a": 0.0, "b": 0.0})
    assert choices_csv([free], ["a", "b"], {}) == "row,expert,expected_error\n1,a,0.25\n"
    assert choices_csv([sure], ["a", "b, the best"], {}) == 'row,expert,posterior_a,"posterior_b, the best"\n1,a,1,0\n'
